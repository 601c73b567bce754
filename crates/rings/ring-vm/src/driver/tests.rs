//! Everything that the drivers can ask for, held against what the monitors publish of their requests.

use serde_json::json;

use super::*;
use crate::choose::DRIVERS;
use crate::cloud_hypervisor::CloudHypervisor;
use crate::firecracker::Firecracker;
use crate::machine::{Acceleration, Memory};

const FIRECRACKER: &str = include_str!("../../schemas/firecracker.json");
const CLOUD_HYPERVISOR: &str = include_str!("../../schemas/cloud-hypervisor.json");

fn machines() -> Vec<Machine> {
    let small = Machine {
        kernel: "/host/vmlinux".into(),
        initramfs: "/host/initramfs".into(),
        command_line: "quiet panic=-1".into(),
        root_image: "/host/root.erofs".into(),
        memory_bytes: 96 << 20,
        cpus: 1,
        acceleration: Acceleration::Kvm,
        acpi: true,
        memory: Memory::Fresh,
    };
    let large = Machine {
        command_line: "\"quoted\" \u{1}\u{fc}".into(),
        memory_bytes: 64 << 30,
        cpus: 32,
        acpi: false,
        ..small.clone()
    };
    vec![small, large]
}

fn everything(driver: &dyn Driver) -> Vec<Request> {
    let machines = machines();
    let started = machines.iter().map(Wish::Start);
    let directory = "/vm/run/kept";
    let others = [Wish::Pause, Wish::Resume, Wish::Save { directory }, Wish::Load { directory }];
    started.chain(others).flat_map(|wish| driver.requests(wish)).collect()
}

/// The name of the definition that a request's body must fulfil; nothing, for one without a body.
fn definition(schema: &Value, request: &Request) -> Option<String> {
    let asked = format!("{} {}", request.method, request.path);
    let known = schema["requests"].as_object().unwrap();
    let found = known.iter().find(|(pattern, _)| match pattern.split_once('{') {
        Some((prefix, _)) => asked.strip_prefix(prefix).is_some_and(|rest| !rest.contains('/')),
        None => **pattern == asked,
    });
    let (_, name) = found.unwrap_or_else(|| panic!("{asked} is no request of this monitor"));
    name.as_str().map(str::to_owned)
}

fn problems(schema: &Value, name: &str, body: &Value) -> Vec<String> {
    let whole = json!({ "$ref": format!("#/$defs/{name}"), "$defs": schema["$defs"] });
    let validator = jsonschema::validator_for(&whole).unwrap();
    validator.iter_errors(body).map(|error| error.to_string()).collect()
}

fn check(driver: &dyn Driver, schema: &str) {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let mut seen = Vec::new();
    for request in everything(driver) {
        match (definition(&schema, &request), &request.body) {
            (Some(name), Some(body)) => {
                assert_eq!(problems(&schema, &name, body), Vec::<String>::new(), "{request:?}");
                seen.push(name);
            }
            (None, None) => {}
            (wanted, _) => panic!("{request:?}: the published body is {wanted:?}"),
        }
    }
    // The check can fail: no definition takes a field that is not published.
    for request in everything(driver) {
        let (Some(name), Some(mut body)) = (definition(&schema, &request), request.body) else {
            continue;
        };
        body.as_object_mut().unwrap().insert("surprise".to_owned(), Value::Null);
        assert!(!problems(&schema, &name, &body).is_empty(), "{name} takes anything");
    }
    // Every published request that was written down is one that is really made.
    for name in schema["requests"].as_object().unwrap().values().filter_map(Value::as_str) {
        assert!(seen.iter().any(|seen| seen == name), "{name} is never asked for");
    }
}

#[test]
fn every_request_to_firecracker_is_one_that_it_publishes() {
    check(&Firecracker, FIRECRACKER);
}

#[test]
fn every_request_to_cloud_hypervisor_is_one_that_it_publishes() {
    check(&CloudHypervisor, CLOUD_HYPERVISOR);
}

#[test]
fn more_processors_than_a_monitor_has_are_not_hidden_from_it() {
    let schema: Value = serde_json::from_str(FIRECRACKER).unwrap();
    let machine = Machine { cpus: 33, ..machines().remove(0) };
    let requests = Firecracker.requests(Wish::Start(&machine));
    let body = requests[0].body.as_ref().unwrap();
    assert!(!problems(&schema, "MachineConfiguration", body).is_empty());
}

#[test]
fn no_driver_gives_a_machine_a_network_or_a_disk_that_it_can_write() {
    for driver in DRIVERS.iter().filter(|driver| driver.control() == Control::Requests) {
        for machine in machines() {
            let asked = format!("{:?}", driver.requests(Wish::Start(&machine)));
            for word in ["network", "\"net\"", "\"fs\"", "tap", "/host/", "mmds", "pmem"] {
                assert!(!asked.contains(word), "{word} in {asked}");
            }
        }
    }
    let [small, _] = &machines()[..] else { panic!("two machines") };
    let disk = &Firecracker.requests(Wish::Start(small))[2];
    assert_eq!(disk.path, "/drives/root");
    assert_eq!(disk.body.as_ref().unwrap()["is_read_only"], true);
    let config = CloudHypervisor.requests(Wish::Start(small)).remove(0).body.unwrap();
    let disks = config["disks"].as_array().unwrap();
    assert_eq!(disks.len(), 1);
    assert_eq!(disks[0]["readonly"], true);
}

#[test]
fn a_driver_without_requests_has_none() {
    for driver in DRIVERS.iter().filter(|driver| driver.control() == Control::Inherited) {
        assert_eq!(everything(*driver), Vec::new());
    }
}

//! Tools that misbehave: each ends in a way that says why, and its warden goes on.

use std::time::Duration;

use ringwall_engine::CompileError;
use ringwall_spec::ToolLimits;

use super::*;

/// Short enough to wait for, and with so much of the rest that only one limit is met.
fn limits() -> ToolLimits {
    ToolLimits { time: Duration::from_millis(300), fuel: u64::MAX, ..ToolLimits::default() }
}

fn ends_with(text: &str, limits: ToolLimits, expected: &ToolStatus) {
    let world = World::new();
    // The same warden before and after: what a tool did to it would show.
    world.still_serves();
    let before = world.resident_bytes();
    for _ in 0..3 {
        let outcome = world.call(&ToolCall { limits, ..world.command(text) });
        assert_eq!(outcome.status, *expected);
        world.still_serves();
    }
    let grown = world.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes were not given back");
    let totals = world.host.totals();
    assert_eq!((totals.wardens_started, totals.wardens_lost), (1, 0));
}

#[test]
fn an_infinite_loop_runs_out_of_time() {
    ends_with(guests::INFINITE_LOOP, limits(), &ToolStatus::Timeout);
}

#[test]
fn an_infinite_loop_runs_out_of_fuel() {
    let limits = ToolLimits { fuel: 1_000_000, ..limits() };
    ends_with(guests::INFINITE_LOOP, limits, &ToolStatus::OutOfFuel);
}

#[test]
fn an_allocation_bomb_meets_the_memory_limit() {
    ends_with(guests::ALLOCATION_BOMB, limits(), &ToolStatus::MemoryLimit);
}

#[test]
fn a_table_bomb_meets_the_memory_limit() {
    ends_with(guests::TABLE_BOMB, limits(), &ToolStatus::MemoryLimit);
}

#[test]
fn endless_recursion_overflows_the_stack() {
    ends_with(guests::STACK_OVERFLOW, limits(), &ToolStatus::StackOverflow);
}

#[test]
fn an_output_flood_meets_the_output_limit() {
    ends_with(guests::OUTPUT_FLOOD, limits(), &ToolStatus::OutputLimit);
}

#[test]
fn a_flood_of_host_calls_meets_its_limit() {
    let limits = ToolLimits { host_calls: 1000, ..limits() };
    ends_with(guests::HOST_CALL_FLOOD, limits, &ToolStatus::HostCallLimit);
}

#[test]
fn a_trap_in_the_start_function_is_told() {
    let reason = "wasm trap: wasm `unreachable` instruction executed".to_owned();
    ends_with(guests::TRAP_IN_START, limits(), &ToolStatus::Trapped { reason });
}

#[test]
fn a_tool_that_waits_in_its_host_runs_out_of_time() {
    ends_with(&guests::sleep(3_600_000), limits(), &ToolStatus::Timeout);
}

#[test]
fn a_memory_that_starts_above_the_limit_is_refused_by_the_call() {
    let large = r#"(module (memory 2048) (func (export "_start")))"#;
    ends_with(large, limits(), &ToolStatus::MemoryLimit);
}

#[test]
fn a_tool_that_blocks_its_whole_warden_costs_only_that_warden() {
    let world = World::new();
    let dir = world.home.path().join("granted");
    std::fs::create_dir(&dir).unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe"), pipe, mode, 0).unwrap();
    let dirs = vec![files::grant(&dir, ringwall_spec::DirAccess::Read)];
    let blocked = ToolCall { limits: limits(), dirs, ..world.command(&guests::open("pipe", 1)) };
    let outcome = world.call(&blocked);
    // A pipe without a writer: nothing to read, or nothing ever.
    assert!(
        matches!(outcome.status, ToolStatus::Timeout | ToolStatus::Exited { code: 0 }),
        "{:?}",
        outcome.status
    );
    world.still_serves();
    let outcome = world.call(&ToolCall { dirs: blocked.dirs, ..world.command(guests::HELLO) });
    assert_eq!(outcome.output, b"hello\n");
}

#[test]
fn what_is_no_tool_is_refused_by_the_compiler() {
    let world = World::new();
    let refused = |wasm: &[u8]| match world.host.compile(wasm) {
        Err(CompileError::Refused { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let hello = wat::parse_str(guests::HELLO).unwrap();
    refused(b"");
    refused(b"\x7fELF");
    refused(&hello[..hello.len() / 2]);
    let mut garbled = hello.clone();
    let middle = garbled.len() / 2;
    garbled[middle..].fill(0xff);
    refused(&garbled);
    // Parses, but is wrong: a function that promises a value and gives none.
    let invalid = wat::parse_str(r#"(module (func (export "_start") (result i32)))"#).unwrap();
    assert!(refused(&invalid).contains("compile"), "{}", refused(&invalid));
    let many = format!(r#"(module (func (export "_start")) {})"#, "(func)".repeat(1_000_000));
    assert!(refused(&wat::parse_str(many).unwrap()).contains("functions"));
    let huge = wat::parse_str(r#"(module (memory 16384) (func (export "_start")))"#).unwrap();
    assert!(refused(&huge).contains("memory"));
    world.still_serves();
}

/// A module with a memory of so many pages and one data segment, at its beginning, that says how
/// long it is and has `content` bytes.
fn with_data(pages: u64, says: u64, content: usize) -> Vec<u8> {
    let leb = |mut number: u64| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
            number >>= 7;
        }
        bytes.push(u8::try_from(number).unwrap());
        bytes
    };
    let section = |id: u8, body: &[u8], more: usize| {
        [&[id][..], &leb((body.len() + more) as u64), body].concat()
    };
    let mut wasm = b"\0asm\x01\0\0\0".to_vec();
    wasm.extend(section(1, &[1, 0x60, 0, 0], 0));
    wasm.extend(section(3, &[1, 0], 0));
    wasm.extend(section(5, &[&[1, 0][..], &leb(pages)].concat(), 0));
    wasm.extend(section(7, &[&[1, 6][..], b"_start", &[0, 0]].concat(), 0));
    wasm.extend(section(10, &[1, 2, 0, 0x0b], 0));
    // One active segment: i32.const 0, end; then its length.
    wasm.extend(section(11, &[&[1, 0, 0x41, 0, 0x0b][..], &leb(says)].concat(), content));
    wasm.resize(wasm.len() + content, 0x5a);
    wasm
}

#[test]
fn a_gigabyte_of_data_is_refused_with_the_reason() {
    let world = World::new();
    let gigabyte = 1 << 30;
    // Made right: a small one of the same make runs.
    let small = ToolCall::command(
        world.host.compile(&with_data(1, 100, 100)).unwrap().digest,
        "tool",
        Vec::new(),
        Vec::new(),
    );
    assert_eq!(world.call(&small).status, ToolStatus::Exited { code: 0 });
    // All of it there: nothing even looks at so much.
    let whole = with_data(gigabyte / 65536, gigabyte, usize::try_from(gigabyte).unwrap());
    assert!(matches!(world.host.compile(&whole), Err(CompileError::TooLarge { .. })));
    drop(whole);
    let refused = |wasm: &[u8]| match world.host.compile(wasm) {
        Err(CompileError::Refused { reason }) => reason,
        other => panic!("{other:?}"),
    };
    // A memory of that size and little data; data that is not there; data for which no room is.
    assert!(refused(&with_data(gigabyte / 65536, 100, 100)).contains("memory"));
    refused(&with_data(1, gigabyte, 100));
    let call = |wasm: &[u8]| {
        let digest = world.host.compile(wasm).unwrap().digest;
        world.call(&ToolCall::command(digest, "tool", Vec::new(), Vec::new())).status
    };
    let too_long = call(&with_data(1, 70_000, 70_000));
    assert!(matches!(too_long, ToolStatus::Trapped { .. }), "{too_long:?}");
    world.still_serves();
}

#[test]
fn a_call_that_hangs_in_its_host_is_ended_from_outside() {
    let world = World::new();
    let dir = world.home.path().join("granted");
    std::fs::create_dir(&dir).unwrap();
    let dirs = vec![files::grant(&dir, ringwall_spec::DirAccess::Read)];
    // Loaded and up before its time counts.
    let sleeping = ToolCall { limits: limits(), dirs, ..world.command(&guests::sleep(200)) };
    assert_eq!(world.call(&sleeping).output, b"awake");
    let [warden] = world.host.wardens()[..] else { panic!("{:?}", world.host.wardens()) };
    std::thread::scope(|scope| {
        let begun = std::time::Instant::now();
        let call = scope.spawn(|| world.call(&sleeping));
        while world.host.calls_under_way() == 0 {
            std::thread::yield_now();
        }
        // Stopped: to the engine it looks like one that never comes back from a system call.
        let pid = rustix::process::Pid::from_raw(i32::try_from(warden).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        assert_eq!(call.join().unwrap().status, ToolStatus::Timeout);
        // The deadline, 50 ms, and what a busy machine adds.
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    });
    assert_eq!(world.host.totals().wardens_lost, 1);
    assert!(!world.host.wardens().contains(&warden));
    assert_eq!(world.call(&sleeping).output, b"awake");
    world.still_serves();
}

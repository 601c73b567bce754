//! A ring with an intruder in the place of what runs in it: its warden, or a guest's monitor. That is
//! how `ringwall verify` finds out what code that took one of them over could still do.
//!
//! The plan is that of any sandbox; only the program differs. No job can be run in such a ring, and
//! nothing that the intruder says is taken for a frame.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ringwall_linux::launch::encode_steps;
use ringwall_linux::step::{PathAccess, RawPath, Step};
use ringwall_permit::Permit;
use ringwall_ring::{JobFilter, RaiseRingError, RingPlan, inner_process_plan, run_slots};
use ringwall_ring_wasm::inner_wasm_plan;
use ringwall_spec::{Limits, RingKind};
use ringwall_wire::{Tunnel, guest_paths};

use crate::config::Engine;
use crate::host;
use crate::place::Purpose;
use crate::raise::{RAISE_TIMEOUT, RaiseError};
use crate::record::{Record, RecordKind};
use crate::sandbox::Sandbox;
use crate::vm::begin_in_guest;

/// What the intruder is started with, whatever it replaces.
const ARGUMENT: &str = "--drill";

/// A ring that an intruder holds. It ends with this value.
#[derive(Debug)]
pub struct Drill {
    sandbox: Sandbox,
    line: Line,
}

#[derive(Debug)]
enum Line {
    Socket(UnixStream),
    Tunnel(Tunnel),
}

impl Engine {
    /// Raises the outermost ring of a wall with a program of the host in its warden's place; in that of
    /// the monitor, if the ring is a guest.
    pub fn drill_outermost(&self, permit: &Permit, intruder: &Path) -> Result<Drill, RaiseError> {
        let begun = Instant::now();
        let id = host::new_id();
        let mut placement = match permit.spec().wall.outermost() {
            RingKind::Wasm => self.place_tools(permit)?,
            _ => self.place(permit, &id, Purpose::Raise)?,
        };
        replace(&mut placement.plan, intruder);
        let record = Record::new(id, permit.spec(), RecordKind::Run, &self.home);
        let (sandbox, outside) = self.start_sandbox(record, permit.spec(), placement, begun)?;
        outside?;
        let socket = sandbox.ring.stream.try_clone().map_err(RaiseRingError::Channel)?;
        Ok(Drill { sandbox, line: Line::Socket(socket) })
    }

    /// Has a raised wall raise its innermost ring once more, with a program that is inside in its
    /// warden's place. `intruder` is its path as a job names it.
    pub fn drill_innermost(&self, sandbox: Sandbox, intruder: &Path) -> Result<Drill, RaiseError> {
        let rings = sandbox.wall().rings().to_vec();
        let tunnel = match rings.as_slice() {
            [RingKind::Vm, ring] => {
                let mut plan = self.plan_inside_guest(*ring, &sandbox)?;
                // For a container ring the image is in the guest, but not its root.
                let image = match ring {
                    RingKind::Container => guest_paths::RING_ROOT,
                    _ => "",
                };
                replace(&mut plan, Path::new(&format!("{image}{}", intruder.display())));
                begin_in_guest(&sandbox.guest()?, &plan, *ring)?
            }
            [.., ring] => {
                let mut steps = match ring {
                    RingKind::Wasm => inner_wasm_plan(&[]),
                    _ => inner_process_plan(&[], JobFilter::Sealed),
                };
                start_instead(&mut steps, intruder);
                let steps = encode_steps(&steps)
                    .map_err(|error| RaiseError::Encode(io::Error::other(error)))?;
                let soon = sandbox.connected()?.until(Instant::now() + RAISE_TIMEOUT);
                soon.raise(steps).map_err(|source| RaiseError::Warden { ring: *ring, source })?
            }
            [] => return Err(RaiseRingError::NoScratch.into()),
        };
        Ok(Drill { sandbox, line: Line::Tunnel(tunnel) })
    }
}

/// What a guest's monitor is held to on its host, for a guest with these limits.
pub fn limits_of_monitor(guest: &Limits) -> Limits {
    Limits {
        memory_bytes: guest.memory_bytes.saturating_add(ringwall_ring_vm::MONITOR_BYTES),
        pids: ringwall_ring_vm::MONITOR_THREADS,
        open_files: ringwall_ring_vm::MONITOR_FILES,
        ..guest.clone()
    }
}

impl Drill {
    /// Tells the intruder what to do, and collects what it says until it ends or its time is over.
    pub fn order(self, order: &[u8], most: u64, patience: Duration) -> io::Result<Vec<u8>> {
        let Drill { sandbox, line } = self;
        let (killer, (done, waiting)) = (sandbox.killer(), mpsc::channel::<()>());
        let watch = std::thread::Builder::new().name("drill".to_owned()).spawn(move || {
            if waiting.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                killer.kill();
            }
        })?;
        let mut said = Vec::new();
        let heard = match line {
            Line::Socket(mut socket) => {
                socket.write_all(order).and_then(|()| socket.take(most).read_to_end(&mut said))
            }
            Line::Tunnel(tunnel) => {
                let (reader, mut writer) = tunnel.split();
                let written = writer.write_all(order).and_then(|()| writer.flush());
                written.and_then(|()| reader.take(most).read_to_end(&mut said))
            }
        };
        drop((done, sandbox));
        let _ = watch.join();
        // A ring that was taken down has said what it said.
        heard.map_or_else(|error| if said.is_empty() { Err(error) } else { Ok(()) }, |_| Ok(()))?;
        Ok(said)
    }
}

/// Puts the intruder where the warden or the VMM of a ring was.
fn replace(plan: &mut RingPlan, intruder: &Path) {
    let started = plan.last.iter().find_map(|step| match step {
        Step::Exec { program, .. } => Some(program.clone()),
        _ => None,
    });
    for step in &mut plan.template {
        if let Step::OpenHostTree { path, into, .. } = step
            && (*into == run_slots::WARDEN || Some(&*path) == started.as_ref())
        {
            *path = RawPath::from(intruder);
        }
    }
    for step in &mut plan.last {
        if let Step::Exec { arguments, .. } = step {
            *arguments = vec![ARGUMENT.to_owned()];
        }
    }
}

/// Does this for a ring that only narrows, where the intruder has a path of its own.
fn start_instead(steps: &mut [Step], intruder: &Path) {
    for step in steps {
        match step {
            Step::Landlock { rules } => rules.push((RawPath::from(intruder), PathAccess::Read)),
            Step::Exec { program, arguments, .. } => {
                *program = RawPath::from(intruder);
                *arguments = vec![ARGUMENT.to_owned()];
            }
            _ => {}
        }
    }
}

//! The ring round the warden: what code that breaks out of WASM finds.

use std::fs;

use ringwall_ring_wasm::Cache;
use ringwall_wire::CompileReport;

use super::*;

#[test]
fn the_ring_shows_nothing_but_itself_and_what_was_granted() {
    let world = World::new();
    let dir = world.home.path().join("granted");
    fs::create_dir(&dir).unwrap();
    let dirs = vec![files::grant(&dir, ringwall_spec::DirAccess::Read)];
    let outcome = world.call(&ToolCall { dirs, ..world.command(guests::HELLO) });
    let [evidence] = outcome.evidence.as_slice() else { panic!("{:?}", outcome.evidence) };
    let facts = &evidence.facts;
    for mount in &facts.mounts {
        let own = ["/dev", "/proc"].iter().any(|own| mount.path.starts_with(own));
        assert!(own || mount.path == "/" || mount.path == "/grants/0", "{mount:?}");
    }
    let granted = facts.mounts.iter().find(|mount| mount.path == "/grants/0").unwrap();
    assert!(granted.read_only);
    assert!(facts.root_read_only && facts.no_new_privs && facts.capabilities.is_empty());
    assert_eq!(facts.seccomp.filters, 2);
    assert_eq!(facts.network_devices, ["lo"]);
}

/// System calls that hostile native code would try. The first always works and shows that the code
/// has run; nothing else may.
fn attempts() -> Vec<Attempt> {
    let path = |path: &'static str| Argument::Text(path);
    let call = |number: i64, arguments: [Argument; 3]| Attempt {
        number: u32::try_from(number).unwrap(),
        arguments,
    };
    let n = Argument::Number;
    vec![
        call(39, [n(0), n(0), n(0)]),                               // getpid
        call(2, [path("/etc/passwd"), n(0), n(0)]),                 // open for reading
        call(2, [path("/proc/1/root/etc/passwd"), n(0), n(0)]),     // open by way of proc
        call(2, [path("/made"), n(0o101), n(0o600)]),               // open a new file for writing
        call(2, [path("/dev/.ringwall/made"), n(0o101), n(0o600)]), // the same on its own /dev
        call(2, [path("/proc/self/mem"), n(2), n(0)]),              // open for writing
        call(2, [path("/grants"), n(0o200_000), n(0)]),             // list a directory
        call(2, [path("/"), n(0o200_000), n(0)]),                   // list the root
        call(2, [path("/bin/busybox"), n(0), n(0)]),                // a file of an image
        call(2, [path("/workspace/secret"), n(0), n(0)]),           // a file that was not granted
        call(2, [path("/tmp/made"), n(0o101), n(0o600)]),           // where commands can write
        call(41, [n(1), n(1), n(0)]),                               // socket, local
        call(41, [n(2), n(1), n(0)]),                               // socket, internet
        call(59, [path("/dev/.ringwall/warden"), n(0), n(0)]),      // execve
        call(57, [n(0), n(0), n(0)]),                               // fork
        call(9, [n(0), n(4096), n(7)]),                             // mmap, writable and executable
        call(101, [n(16), n(1), n(0)]),                             // ptrace
        call(272, [n(0x1000_0000), n(0), n(0)]),                    // unshare, user namespace
        call(425, [n(8), n(0), n(0)]),                              // io_uring_setup
        call(62, [n(1), n(0), n(0)]),                               // kill
    ]
}

struct Attempt {
    number: u32,
    arguments: [Argument; 3],
}

enum Argument {
    Number(u64),
    Text(&'static str),
}

/// x86-64 code that makes the attempts and returns a bit for each that worked.
fn native_code() -> Vec<u8> {
    let mut code = vec![0x53, 0x31, 0xdb]; // push rbx; xor ebx, ebx
    for (bit, attempt) in attempts().iter().enumerate() {
        for (argument, (number, address)) in
            attempt.arguments.iter().zip([(0xbf, 0x3d), (0xbe, 0x35), (0xba, 0x15)])
        {
            match argument {
                Argument::Number(value) => {
                    code.extend([0x48, number]); // mov rdi / rsi / rdx, value
                    code.extend(value.to_le_bytes());
                }
                Argument::Text(text) => {
                    let length = u8::try_from(text.len() + 1).unwrap();
                    code.extend([0xeb, length]); // jump over the text
                    code.extend(text.bytes().chain([0]));
                    let back = -i32::from(length) - 7;
                    code.extend([0x48, 0x8d, address]); // lea rdi / rsi / rdx, [rip + back]
                    code.extend(back.to_le_bytes());
                }
            }
        }
        code.extend([0x41, 0xba, 0x22, 0, 0, 0]); // mov r10d, 0x22: of use to mmap only
        code.extend([0x49, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff]); // mov r8, -1
        code.extend([0x45, 0x31, 0xc9]); // xor r9d, r9d
        code.push(0xb8); // mov eax, number
        code.extend(attempt.number.to_le_bytes());
        code.extend([0x0f, 0x05, 0x48, 0x85, 0xc0, 0x78, 0x06]); // syscall; test rax, rax; js +6
        code.extend([0x81, 0xcb]); // or ebx, bit
        code.extend((1u32 << bit).to_le_bytes());
    }
    code.extend([0x89, 0xd8, 0x5b, 0x48, 0x89, 0xec, 0x5d, 0xc3]); // mov eax, ebx; pop rbx; leave; ret
    code
}

/// A guest with a function that is long enough to be written over. It writes what that returns.
fn guest() -> String {
    let stores: String = (0..160)
        .map(|n| format!("(i64.store (i32.const {}) (i64.const {}))", 1024 + 8 * n, constant(n)))
        .collect();
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $drill (result i32) {stores} (i32.const 0))
  (func (export "_start")
    (i32.store (i32.const 16) (call $drill))
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 4))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#
    )
}

fn constant(n: u64) -> u64 {
    0x1122_3344_5566_0000 + n * 7
}

#[test]
fn native_code_in_the_warden_finds_no_files_no_network_and_nothing_to_start() {
    let world = World::new();
    let call = break_out(&world);
    assert_nothing_worked(&open(world.state()).call(&call).unwrap());
}

#[track_caller]
pub(crate) fn assert_nothing_worked(outcome: &ToolOutcome) {
    let worked = u32::from_le_bytes(outcome.output.as_slice().try_into().unwrap());
    assert_eq!(worked, 1, "attempts that worked, as bits: {worked:b}");
}

/// A call whose compiled code was replaced in the cache by what hostile native code would do.
pub(crate) fn break_out(world: &World) -> ToolCall {
    let call = world.command(&guest());
    let cache = Cache::open(&world.state().join("tools-cache")).unwrap();
    let entry = cache.find(&call.digest).unwrap();
    let mut code = Vec::new();
    std::io::Read::read_to_end(&mut &entry.code, &mut code).unwrap();
    let place = |n| code.windows(8).position(|bytes| bytes == constant(n).to_le_bytes()).unwrap();
    // Where the first constant is loaded: the operation has two bytes before it.
    let (at, end) = (place(0) - 2, place(159));
    let native = native_code();
    assert!(at + native.len() < end, "{} bytes of code for {}", end - at, native.len());
    code[at..at + native.len()].copy_from_slice(&native);
    let report =
        CompileReport { kind: entry.kind, manifest: entry.manifest, imports: entry.imports };
    cache.put(&call.digest, &code, &report).unwrap();
    call
}

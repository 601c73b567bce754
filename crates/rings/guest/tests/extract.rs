//! `scripts/guest-kernel.sh extract` on kernel images made for the purpose.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Sectors of real-mode code; the compressed part lies behind them.
const SETUP_SECTORS: usize = 3;
const PAYLOAD_OFFSET: usize = 716;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/guest-kernel.sh")
}

fn contents() -> Vec<u8> {
    let mut contents = b"\x7fELF".to_vec();
    contents.extend((0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()));
    contents
}

/// A kernel image by the boot protocol, as far as it matters here.
fn image(payload: &[u8]) -> Vec<u8> {
    let mut image = vec![0; (SETUP_SECTORS + 1) * 512 + PAYLOAD_OFFSET];
    image[0x1f1] = SETUP_SECTORS as u8;
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    image[0x248..0x24c].copy_from_slice(&(PAYLOAD_OFFSET as u32).to_le_bytes());
    image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    image.extend(payload);
    // More code follows, which must not confuse the program that unpacks.
    image.extend([0x1f, 0x8b, 0x08, 0xfd, 0x37, 0x7a, 0x58, 0x5a].repeat(5000));
    image
}

/// None where the program is not there.
fn compressed(program: &str, arguments: &[&str], contents: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let contents = contents.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&contents));
    let output = child.wait_with_output().ok()?;
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    Some(output.stdout)
}

fn extract(image: &[u8]) -> (Output, Option<Vec<u8>>) {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("vmlinuz"), directory.path().join("vmlinux"));
    fs::write(&from, image).unwrap();
    let output = Command::new(script()).arg("extract").args([&from, &to]).output().unwrap();
    (output, fs::read(&to).ok())
}

fn refused(image: &[u8], because: &str) {
    let (output, _) = extract(image);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(because), "{said}");
}

#[test]
fn a_kernel_is_unpacked_whatever_packed_it() {
    let contents = contents();
    let packers: [(&str, &[&str], bool); 4] = [
        ("gzip", &["-c"], true),
        ("xz", &["-c", "--check=crc32"], false),
        ("zstd", &["-qc"], false),
        ("lz4", &["-qlc"], false),
    ];
    for (program, arguments, has_size) in packers {
        let Some(mut payload) = compressed(program, arguments, &contents) else {
            eprintln!("not tested here: {program} is not installed");
            continue;
        };
        if !has_size {
            payload.extend((contents.len() as u32).to_le_bytes());
        }
        let (output, result) = extract(&image(&payload));
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(result.is_some_and(|result| result == contents), "{program}");
    }
}

#[test]
fn what_is_no_kernel_image_is_refused() {
    refused(b"short", "no kernel image");
    refused(&[0; 4096], "no kernel image");
    let mut cut = image(b"\x1f\x8b\x08 and more");
    cut.truncate((SETUP_SECTORS + 1) * 512 + PAYLOAD_OFFSET);
    refused(&cut, "cut short");
}

#[test]
fn an_unknown_way_of_packing_is_named() {
    refused(&image(b"abcd0123456789"), "61626364");
}

#[test]
fn contents_that_are_not_whole_or_no_program_are_refused() {
    let mut whole = compressed("gzip", &["-c"], &contents()).unwrap();
    let last = whole.len() - 1;
    whole[last] ^= 1;
    refused(&image(&whole), "does not unpack");
    let text = compressed("gzip", &["-c"], b"just some text, not a program").unwrap();
    refused(&image(&text), "no ELF file");
}

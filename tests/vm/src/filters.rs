//! Filters of a job's own: in a guest, and only with --own-filters.

use crate::channel::{WITH_PERL, import_perl};
use crate::site::Site;

/// Puts a seccomp filter in force that refuses getppid, with error 77, and asks for it.
const INSTALL: &str = r#"
    sub filter { pack('S C C L', @_) }
    my $rules = filter(0x20, 0, 0, 0) . filter(0x15, 0, 1, 110) . filter(6, 0, 0, 0x0005004d)
        . filter(6, 0, 0, 0x7fff0000);
    my $program = pack('S x6 P', 4, $rules);
    syscall(157, 38, 1, 0, 0, 0);
    print 'install ', (syscall(317, 1, 0, $program) == 0 ? 0 : $! + 0), "\n";
    print 'parent ', (syscall(110) >= 0 ? 0 : $! + 0), "\n";
"#;

#[test]
fn a_job_in_a_guest_has_filters_of_its_own_only_when_that_was_asked_for() {
    let site = Site::new();
    import_perl(&site);
    let run = |wall: &str, flags: &[&str]| {
        let line = ["run", "--wall", wall, "--image", WITH_PERL, "-e", "LC_ALL=C"];
        site.ringwall(&[&line[..], flags, &["--", "perl", "-e", INSTALL]].concat())
    };
    for wall in ["vm/process", "vm/container"] {
        run(wall, &["--own-filters"]).exits(0).prints("install 0\nparent 77\n");
        run(wall, &[]).exits(0).prints("install 22\nparent 0\n");
    }
    // A filter in a wall that shares the host's kernel would be the host's.
    let shared = site.ringwall(&["run", "--wall", "process", "--own-filters", "--", "true"]);
    shared.is_refused().says(&["own-filters", "a wall that begins with vm"]);
    site.is_clean();
}

//! The workspace: what it hides stays hidden under every name, what comes out of it stays in it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::support::{Arena, Outcome, Planted, at_every_wall, token};

fn with_workspace(arena: &Arena, flags: &[&str], script: &str) -> Outcome {
    let project = arena.project();
    let workspace = ["--workspace", project.to_str().expect("plain")];
    arena.attack_with(&[&workspace, flags].concat(), script)
}

/// Runs the script in the workspace and gives the id of the run.
#[track_caller]
fn changed(arena: &Arena, script: &str) -> String {
    let run = with_workspace(arena, &["-o", "json"], script);
    run.exits(0).json()["id"].as_str().expect("an id").to_owned()
}

/// Looks for hidden files by every name a job could think of.
fn look_everywhere(project: &Path) -> String {
    format!(
        r#"
        my @roots = (".", "{project}", "/workspace", "/workspace-source", "/layers", "/layers/0", "/scratch",
            "/root", "/shown{project}", "/tmp/workspace", "/tmp/workspace-work", "/dev/.ringwall/no-dir");
        push @roots, map {{ ("/proc/$_/cwd", "/proc/$_/root/workspace", "/proc/$_/root/workspace-source",
            "/proc/$_/root{project}") }} "self", "thread-self", 1 .. 9;
        for my $root (@roots) {{
            for my $name (".env", "sub/.env", ".ENV", "./sub/../.env", "link", "sub/link", "deep/a/b/id_rsa",
                    "key.pem", ".ssh/id_ed25519", "hard") {{
                my $content = slurp("$root/$name"); print "$root/$name: $content\n" if defined $content;
            }}
        }}
        # Tricks with the overlay: moving, linking and removing what lies above a hidden file.
        rename("sub", "moved"); print slurp("moved/.env") // "";
        link(".env", "other"); print slurp("other") // "";
        link("sub/link", "other2"); print slurp("other2") // "";
        system("rm", "-rf", "deep") if -x "/bin/rm"; unlink "sub/.env"; rmdir "sub"; mkdir "sub";
        print slurp("sub/.env") // "";
        open($new, ">", ".env") and close $new; unlink ".env"; print slurp(".env") // "";
        print "looked\n";
    "#,
        project = project.display()
    )
}

fn plant_secrets(arena: &Arena, secret: &str) {
    let key = format!("-----BEGIN PRIVATE KEY-----\n{secret}\n");
    for name in [".env", "sub/.env", ".ENV", "deep/a/b/id_rsa", ".ssh/id_ed25519"] {
        arena.write(name, format!("KEY={secret}\n"));
    }
    arena.write("key.pem", key);
    symlink(".env", arena.project().join("link")).expect("a link");
    symlink("../.env", arena.project().join("sub/link")).expect("a link");
}

#[test]
fn overlay_hides_secrets_under_every_name() {
    at_every_wall(|arena| {
        let secret = token("env");
        plant_secrets(arena, &secret);
        let script = look_everywhere(&arena.project());
        with_workspace(arena, &[], &script).exits(0).shows("looked").never_shows(&secret);
        let in_place = arena.project();
        // A directory of root's is refused altogether.
        std::os::unix::fs::chown(&in_place, Some(12345), None).expect("root may do that");
        let flags = ["--workspace-rw", in_place.to_str().expect("plain")];
        arena.attack_with(&flags, &script).exits(0).shows("looked").never_shows(&secret);
        arena.control(&script).shows(&secret);
    });
}

#[test]
fn a_cache_tag_of_a_jobs_making_does_not_uncover_secrets() {
    // A directory with such a tag is not searched. A job may ask for one to be applied.
    at_every_wall(|arena| {
        let secret = token("tagged");
        arena.write("config/.env", &secret);
        arena.write("config/open", "plain");
        let tag = "open(my $f, '>', 'config/CACHEDIR.TAG') or die; \
                   print $f 'Signature: 8a477f597d28d172789f06886806bc55'; close $f;";
        let id = changed(arena, tag);
        arena.ringwall(["apply", &id]);
        let read = "print slurp('config/open'), slurp('config/.env') // '';";
        with_workspace(arena, &[], read).exits(0).shows("plain").never_shows(&secret);
        arena.control(read).shows(&secret);
    });
}

#[test]
fn the_state_of_ringwall_cannot_be_handed_to_a_job() {
    at_every_wall(|arena| {
        let state = arena.path("home");
        for place in [arena.path(""), state.clone(), state.join("sandboxes")] {
            if !place.exists() {
                continue;
            }
            for flag in ["--workspace", "--workspace-rw"] {
                let flags = [flag, place.to_str().expect("plain")];
                let refused = arena.attack_with(&flags, "print qq(started\\n);");
                refused.exits(125).never_shows("started");
            }
        }
        // The control: beside it there is no objection.
        with_workspace(arena, &[], "print qq(started\\n);").exits(0).shows("started");
    });
}

#[test]
fn apply_never_writes_through_a_link_out_of_the_workspace() {
    at_every_wall(|arena| {
        let outside = Planted::below(&arena.path("")).expect("a file");
        arena.give(&outside.path);
        let directory = arena.path("outside");
        arena.make_dir(&directory);
        arena.write("dir/file", "old\n");
        arena.write("file", "old\n");
        let id = changed(
            arena,
            &format!(
                "unlink 'file'; symlink('{file}', 'file'); symlink('{dir}', 'new'); symlink('..', 'up');\
                 symlink('/', 'root'); unlink 'dir/file'; rmdir 'dir'; symlink('{dir}', 'dir');",
                file = outside.path.display(),
                dir = directory.display()
            ),
        );
        arena.ringwall(["diff", &id]).never_shows(&outside.secret);
        // The links were put there by somebody else meanwhile: the next job writes below them.
        let applied = arena.ringwall(["apply", &id]);
        let through = "for my $path ('new/through', 'dir/through', 'up/through', 'file') { \
                       open($f, '>', $path) and print $f 'spoilt'; } mkdir 'new'; mkdir 'dir2'; \
                       open(my $g, '>', 'dir2/through') or die; print $g 'spoilt';";
        let id = changed(arena, through);
        // Between the run and apply the host's directory becomes a link.
        let swapped = arena.project().join("dir2");
        let _ = fs::remove_dir_all(&swapped);
        symlink(&directory, &swapped).expect("a link");
        let again = arena.ringwall(["apply", &id]);
        assert!(outside.is_intact(), "{applied:?}\n{again:?}");
        let got_out = fs::read_dir(&directory).expect("a directory").count();
        assert_eq!(got_out, 0, "{applied:?}\n{again:?}");
        assert!(!arena.path("through").exists());
    });
}

#[test]
fn apply_keeps_protected_files() {
    let protected = [
        ".git/hooks/post-checkout",
        ".git/config",
        ".GIT/hooks/pre-commit",
        ".gitmodules",
        ".github/workflows/ci.yml",
        ".claude/settings.json",
        ".vscode/tasks.json",
        ".envrc",
        ".bashrc",
        "sub/.git/hooks/pre-push",
        "AGENTS.md",
    ];
    at_every_wall(|arena| {
        for name in protected {
            let id = changed(
                arena,
                &format!(
                    "my $d = ''; for (split m{{/}}, '{name}' =~ s{{/?[^/]*$}}{{}}r) {{ $d .= qq($_/); mkdir $d }}\
                     open(my $f, '>', '{name}') or die qq({name} $!); print $f 'evil'; close $f; chmod 0755, '{name}';"
                ),
            );
            let refused = arena.ringwall(["apply", &id]);
            assert!(!arena.project().join(name).exists(), "{name}\n{refused:?}");
            // The control: the job did write it, and whoever insists gets it.
            let mut line = vec!["apply".to_owned(), id];
            for path in Path::new(name).ancestors().filter(|path| !path.as_os_str().is_empty()) {
                line.extend(["--allow-protected".to_owned(), path.display().to_string()]);
            }
            let forced = arena.ringwall(line);
            assert!(arena.project().join(name).exists(), "{name}\n{forced:?}");
        }
    });
}

#[test]
fn apply_brings_out_no_setuid_bits_devices_or_hard_links() {
    at_every_wall(|arena| {
        let outside = Planted::below(&arena.path("")).expect("a file");
        let id = changed(
            arena,
            "open(my $f, '>', 'tool') or die; print $f 'x'; close $f; chmod 06755, 'tool';\
             mkdir 'dir'; chmod 07777, 'dir'; syscall(133, text('fifo'), 0010666, 0);\
             link('tool', 'same'); socket(my $s, 1, 1, 0); bind($s, pack('S a108', 1, 'sock'));",
        );
        arena.ringwall(["apply", &id]);
        let mut seen = 0;
        for entry in fs::read_dir(arena.project()).expect("a directory").flatten() {
            let meta = entry.metadata().expect("an entry");
            assert_eq!(meta.permissions().mode() & 0o6000, 0, "{entry:?}");
            assert!(meta.is_file() || meta.is_dir(), "{entry:?}");
            seen += 1;
        }
        assert!(outside.is_intact());
        // The control: without what cannot be brought out, the same change is applied.
        if seen == 0 {
            let id = changed(arena, "open(my $f, '>', 'tool') or die; chmod 06755, 'tool';");
            arena.ringwall(["apply", &id]);
            let meta = fs::metadata(arena.project().join("tool")).expect("applied");
            assert_eq!(meta.permissions().mode() & 0o6000, 0);
        }
    });
}

#[test]
fn copying_out_follows_no_link_of_the_sandbox() {
    at_every_wall(|arena| {
        let outside = Planted::below(&arena.path("")).expect("a file");
        let target = arena.path("copied");
        arena.make_dir(&target);
        let id = arena.create(&[]);
        arena
            .attack_in(
                &id,
                &format!(
                    "mkdir '/tmp/out'; mkdir '/tmp/out/dir'; symlink('{file}', '/tmp/out/link');\
                     symlink('{dir}', '/tmp/out/up'); open(my $f, '>', '/tmp/out/file') or die; print $f 'fine';",
                    file = outside.path.display(),
                    dir = arena.path("").display(),
                ),
            )
            .exits(0);
        let source = format!("{id}:/tmp/out");
        let copied = arena.ringwall(["cp", &source, target.to_str().expect("plain")]);
        assert!(outside.is_intact());
        for name in ["out/link", "link", "out/up", "up"] {
            let content = fs::read_to_string(target.join(name)).unwrap_or_default();
            assert!(!content.contains(&outside.secret), "{copied:?}");
        }
        // The control: what is plain is copied.
        let file = [target.join("out/file"), target.join("file")].into_iter().find(|p| p.exists());
        let linkless = arena.attack_in(&id, "unlink '/tmp/out/link', '/tmp/out/up';");
        linkless.exits(0);
        if file.is_none() {
            arena.ringwall(["cp", &source, target.to_str().expect("plain")]).exits(0);
            assert!(target.join("out/file").exists() || target.join("file").exists());
        }
        arena.ringwall(["rm", "--force", &id]).exits(0);
    });
}

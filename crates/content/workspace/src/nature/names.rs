//! What a name says of the nature of a file.

use std::path::{Component, Path};

use super::Nature;
use crate::pattern::fold;

/// What happens when git, or another program with hooks, does something.
const EVENTS: [&str; 13] = [
    "applypatch",
    "auto-gc",
    "checkout",
    "commit",
    "index-change",
    "install",
    "merge",
    "push",
    "rebase",
    "receive",
    "rewrite",
    "start",
    "update",
];
const HOOKS: [&str; 7] = [
    "applypatch-msg",
    "commit-msg",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "fsmonitor-watchman",
];
/// Languages load these files instead of the source next to them: `__pycache__/a.cpython-311.pyc` for `a.py`.
/// A reader of the source does not see that. Other machine code is known by its first bytes.
const COMPILED: [&str; 7] = [".beam", ".elc", ".jar", ".phar", ".pyc", ".pyo", ".rbc"];
/// Ends of names that settings and build files have at any depth.
const SETTINGS: [&str; 39] = [
    ".am",
    ".bazel",
    ".bzl",
    ".cabal",
    ".cfg",
    ".cmake",
    ".conf",
    ".config",
    ".desktop",
    ".gemspec",
    ".gradle",
    ".gradle.kts",
    ".gyp",
    ".gypi",
    ".ini",
    ".lock",
    ".m4",
    ".mk",
    ".nix",
    ".opam",
    ".podspec",
    ".props",
    ".properties",
    ".pth",
    ".sbt",
    ".service",
    ".sln",
    ".targets",
    ".tf",
    "cmakelists.txt",
    "config.ru",
    "conftest.py",
    "customize.py",
    "meson.build",
    "meson_options.txt",
    "mix.exs",
    "proj",
    "requirements.txt",
    "setup.py",
];
/// Whole names that build tools and package managers execute or obey at any depth.
const BUILD_FILES: [&str; 46] = [
    "autogen.sh",
    "bootstrap.sh",
    "build",
    "build.clj",
    "build.ninja",
    "build.py",
    "build.rs",
    "build.sc",
    "build.sh",
    "build.xml",
    "build.zig",
    "build.zig.zon",
    "cabal.project",
    "conanfile.py",
    "conanfile.txt",
    "configure",
    "configure.ac",
    "configure.in",
    "default.nix",
    "deps.edn",
    "dune",
    "dune-project",
    "dune-workspace",
    "fabfile.py",
    "flake.nix",
    "gnumakefile",
    "go.mod",
    "go.sum",
    "go.work",
    "gruntfile.coffee",
    "gruntfile.js",
    "gulpfile.js",
    "jakefile.js",
    "manage.py",
    "noxfile.py",
    "package.swift",
    "premake5.lua",
    "project.clj",
    "sconscript",
    "sconstruct",
    "shell.nix",
    "tasks.py",
    "tupfile",
    "workspace",
    "wscript",
    "xmake.lua",
];
/// Manifests and settings in one of the forms below, at any depth: `packages/a/package.json`.
const MANIFESTS: [&str; 44] = [
    "action",
    "angular",
    "biome",
    "bower",
    "build",
    "bunfig",
    "cargo",
    "chart",
    "cmakepresets",
    "cmakeuserpresets",
    "compose",
    "composer",
    "conda",
    "deno",
    "devbox",
    "docker-compose",
    "environment",
    "firebase",
    "ivy",
    "jsconfig",
    "kustomization",
    "launch",
    "lerna",
    "netlify",
    "npm-shrinkwrap",
    "nx",
    "package",
    "package-lock",
    "pnpm-lock",
    "pnpm-workspace",
    "pom",
    "project",
    "pubspec",
    "pyproject",
    "renovate",
    "rush",
    "serverless",
    "skaffold",
    "stack",
    "tsconfig",
    "turbo",
    "vcpkg",
    "vercel",
    "wrangler",
];
/// Forms that settings have: at the top of a workspace tools look for them.
const FORMS: [&str; 9] =
    [".toml", ".yaml", ".yml", ".json", ".jsonc", ".json5", ".xml", ".plist", ".lock"];
/// Documents in capital letters that people read, and agents do not obey.
const DOCUMENTS: [&str; 16] = [
    "architecture",
    "authors",
    "changelog",
    "changes",
    "code_of_conduct",
    "contributing",
    "copying",
    "credits",
    "faq",
    "history",
    "install",
    "license",
    "news",
    "notice",
    "readme",
    "security",
];

pub(super) fn by_name(path: &Path) -> Nature {
    let names: Vec<String> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.as_encoded_bytes()),
            _ => None,
        })
        .map(|name| String::from_utf8_lossy(&fold(name)).into_owned())
        .collect();
    let Some((name, above)) = names.split_last() else { return Nature::Plain };
    let is_hooks = |directory: &String| {
        directory.ends_with("hooks") || directory.ends_with("hooks.d") || directory.ends_with(".d")
    };
    if above.iter().any(is_hooks) || is_hook(name) {
        return Nature::Hook;
    }
    if COMPILED.iter().any(|end| name.ends_with(end)) {
        return Nature::Executable;
    }
    let dotted = |name: &String| name.starts_with('.') || name.starts_with("_darcs");
    if above.first().is_some_and(dotted) {
        return Nature::DotDirectory;
    }
    let unfolded = path.file_name().unwrap_or_default().to_string_lossy();
    let is_settings = above.iter().any(dotted)
        || (dotted(name) && !is_inert(name))
        || has_settings_name(name)
        || is_manifest(name, above.is_empty())
        || is_build_file(&unfolded)
        || is_instructions(&unfolded, name);
    if is_settings { Nature::Configuration } else { Nature::Plain }
}

fn is_hook(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    let event = stem.strip_prefix("pre").or_else(|| stem.strip_prefix("post"));
    let event = event.map(|event| event.strip_prefix('-').unwrap_or(event));
    HOOKS.contains(&stem) || event.is_some_and(|event| EVENTS.contains(&event))
}

/// Names of lists that tools only leave files out by.
fn is_inert(name: &str) -> bool {
    name.ends_with("ignore") || matches!(name, ".gitkeep" | ".keep" | ".editorconfig")
}

fn has_settings_name(name: &str) -> bool {
    let (stem, end) = name.split_once('.').unwrap_or((name, ""));
    let has_form = matches!(end, "" | "js" | "cjs" | "mjs" | "json" | "yml" | "yaml" | "toml");
    SETTINGS.iter().any(|end| name.ends_with(end))
        || name.contains(".config.")
        || (stem.len() > 2 && stem.ends_with("rc") && has_form)
}

/// A file of a form that settings have: any at the top, and below it those whose names say that they are.
fn is_manifest(name: &str, at_the_top: bool) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    let has_form = FORMS.iter().any(|form| name.ends_with(form));
    // `gulpfile.babel.js`, `gulpfile.ts`.
    let is_task = ["gulpfile", "gruntfile", "jakefile"].contains(&stem);
    (has_form && (at_the_top || MANIFESTS.contains(&stem)))
        || BUILD_FILES.contains(&name)
        || is_task
}

/// `Makefile`, `Dockerfile`, `Vagrantfile`: they name commands to run.
fn is_build_file(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    let is_capital = stem.starts_with(|c: char| c.is_ascii_uppercase());
    (is_capital && stem.ends_with("file")) || matches!(name, "makefile" | "justfile")
}

/// `WARP.md`, `AGENTS.md`: in capital letters, for people and agents who work here.
fn is_instructions(name: &str, folded: &str) -> bool {
    let Some((stem, end)) = name.rsplit_once('.') else { return false };
    let is_capital = !stem.is_empty() && !stem.contains(|c: char| c.is_lowercase());
    let folded_stem = folded.split('.').next().unwrap_or_default();
    let is_text = matches!(end.to_ascii_lowercase().as_str(), "md" | "mdc" | "txt");
    is_text
        && is_capital
        && stem.contains(|c: char| c.is_uppercase())
        && !DOCUMENTS.iter().any(|document| folded_stem.starts_with(document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::is_protected;

    fn nature(path: &str) -> Nature {
        if is_protected(Path::new("/w"), Path::new(path)) {
            Nature::Protected
        } else {
            by_name(Path::new(path))
        }
    }

    #[test]
    fn names_that_programs_of_the_host_obey_are_never_plain() {
        for path in [
            ".hg/hgrc-not-shared",
            ".direnv/flake.rc",
            "mise.local.toml",
            ".mise.local.toml",
            ".config/mise/config.toml",
            ".bsp/sbt.json",
            ".theia/tasks.json",
            ".vs/launch.vs.json",
            ".gitpod.yml",
            ".externalToolBuilders/x.launch",
            "_darcs/prefs/defaults",
            ".pijul/config",
            ".iex.exs",
            ".ghci",
            ".ocamlinit",
            ".octaverc",
            ".perldb",
            ".byebugrc",
            ".valgrindrc",
            "ansible.cfg",
            ".pylintrc",
            ".luacheckrc",
            ".eslintrc.js",
            ".php-cs-fixer.php",
            ".zuul.yaml",
            ".taskcluster.yml",
            "bitrise.yml",
            "codemagic.yaml",
            "netlify.toml",
            ".readthedocs.yaml",
            "WARP.md",
            ".rules",
            ".factory/x",
            ".claude-plugin/x",
            ".amp/x",
            ".github/skills/x",
        ] {
            assert_eq!(nature(path), Nature::Protected, "{path}");
            let unknown = by_name(Path::new(path));
            assert!(unknown > Nature::Plain, "{path} is plain without the list");
        }
        // No list has these.
        for (path, expected) in [
            ("sub/.newtoolrc", Nature::Configuration),
            (".newtool/start.sh", Nature::DotDirectory),
            ("newtool.config.mjs", Nature::Configuration),
            ("sub/newtoolrc.cjs", Nature::Configuration),
            ("tools/newhooks/on-open", Nature::Hook),
            ("scripts/post-checkout.sh", Nature::Hook),
            ("etc/profile.d/x.sh", Nature::Hook),
            ("Newfile", Nature::Configuration),
            ("NEWAGENT.md", Nature::Configuration),
            ("newci.yml", Nature::Configuration),
            ("packages/a/package.json", Nature::Configuration),
            ("packages/a/tsconfig.build.json", Nature::Configuration),
            ("sub/pom.xml", Nature::Configuration),
            ("sub/Cargo.toml", Nature::Configuration),
            ("sub/pnpm-lock.yaml", Nature::Configuration),
            ("gulpfile.js", Nature::Configuration),
            ("sub/Gulpfile.babel.mjs", Nature::Configuration),
            ("noxfile.py", Nature::Configuration),
            ("sub/BUILD.bazel", Nature::Configuration),
            ("sub/BUILD", Nature::Configuration),
            ("rules/x.bzl", Nature::Configuration),
            ("SConstruct", Nature::Configuration),
            ("sub/configure.ac", Nature::Configuration),
            ("sub/x.csproj", Nature::Configuration),
            ("infra/main.tf", Nature::Configuration),
        ] {
            assert_eq!(nature(path), expected, "{path}");
        }
    }

    #[test]
    fn sources_documents_and_data_are_plain() {
        for path in [
            "src/main.rs",
            "src/arc.rs",
            "README.md",
            "docs/guide.md",
            "CHANGELOG.md",
            "LICENSE",
            "LICENSE-MIT.txt",
            "data/rows.json",
            "i18n/de.yml",
            ".gitignore",
            "lib/update.py",
            "src/prefix.c",
            "lib/profile.c",
            "src/postgres.rs",
            "src/package.rs",
            "src/build/mod.rs",
            "data/environments.json",
            "lib/tempfile.py",
        ] {
            assert_eq!(nature(path), Nature::Plain, "{path}");
        }
    }
}

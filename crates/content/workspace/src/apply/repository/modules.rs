//! The modules that a setting's command has an interpreter load.
//!
//! `python3 -m clean` executes `clean.py` or `clean/__main__.py` of the directory in which git starts it,
//! which is the top of the working tree. Other programs look for their bare arguments elsewhere.

/// Programs that look for modules, scripts or packages by bare names, without the digits of a version.
const INTERPRETERS: [&str; 37] = [
    "bun",
    "bundle",
    "bunx",
    "conda",
    "deno",
    "groovy",
    "hatch",
    "ipython",
    "java",
    "jruby",
    "jshell",
    "julia",
    "lua",
    "luajit",
    "mamba",
    "micromamba",
    "node",
    "nodejs",
    "nox",
    "npm",
    "npx",
    "pdm",
    "perl",
    "php",
    "pipenv",
    "pixi",
    "pnpm",
    "poetry",
    "py",
    "pypy",
    "python",
    "ruby",
    "rye",
    "ts-node",
    "tsx",
    "uv",
    "yarn",
];
/// The word after these is a module, whatever the program.
const MODULE_OPTIONS: [&str; 6] = ["-m", "-M", "-r", "--module", "--require", "--import"];

/// What a command loads by bare names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Modules {
    pub(super) names: Vec<String>,
    /// All modules that those import are looked for in the current directory first.
    pub(super) from_top: bool,
}

/// The modules in the words of a command, in their order.
pub(super) fn modules_of<'a>(words: impl Iterator<Item = &'a str>) -> Modules {
    let words: Vec<&str> = words.collect();
    let is_any = words.iter().any(|word| INTERPRETERS.contains(&program(word).as_str()));
    let is_python = words
        .iter()
        .any(|word| ["python", "pypy", "py", "ipython"].contains(&program(word).as_str()));
    let mut modules = Modules::default();
    let mut after_option = false;
    for word in words {
        let attached = word.strip_prefix("-m").filter(|name| !name.is_empty());
        let name = attached.unwrap_or(word);
        if is_any || after_option || attached.is_some() {
            modules.names.extend(is_bare(name).then(|| name.to_owned()));
        }
        after_option = MODULE_OPTIONS.contains(&word);
        // `-m` and `-c`, also behind other letters, and a program from standard input.
        let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        modules.from_top |= is_python
            && letters.is_some_and(|letters| letters.is_empty() || letters.contains(['c', 'm']));
    }
    modules
}

/// The last name of a path to a program, without what follows it for a version.
fn program(word: &str) -> String {
    let name = word.rsplit('/').next().unwrap_or(word).to_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-').to_owned()
}

/// A name, or several with dots between them.
fn is_bare(word: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    !word.starts_with('-') && word.split('.').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(command: &str) -> Modules {
        modules_of(command.split([' ', '=', '"', '\'', '(', ')']).filter(|word| !word.is_empty()))
    }

    #[test]
    fn modules_of_interpreters_are_found() {
        for command in [
            "\"/usr/bin/python3\" -m clean.up",
            "python3.12 -mclean.up",
            "/opt/x/bin/pypy3 -Bm clean.up",
            "env PYTHONPATH=tools uv run -m clean.up",
            "PY=python3 sh -c 'exec python -m clean.up'",
        ] {
            let found = modules(command);
            assert!(found.names.iter().any(|name| name == "clean.up"), "{command}: {found:?}");
            assert!(found.from_top || command.contains("uv"), "{command}");
        }
        assert!(modules("wrapped -m clean").names.contains(&"clean".to_owned()));
        assert!(modules("python3 -c 'import clean'").names.contains(&"clean".to_owned()));
        assert!(!modules("node -r hook run").from_top);
    }

    #[test]
    fn arguments_of_other_programs_are_no_modules() {
        for command in
            ["gh auth git-credential", "git-lfs clean -- %f", "code --wait --diff", "log --graph"]
        {
            assert_eq!(modules(command), Modules::default(), "{command}");
        }
    }
}

//! Coding agents of others, as data: what each has to reach, the key that it needs, and which of its
//! files in a person's home it wants to see.

use std::path::PathBuf;

mod settings;

pub(crate) use settings::{Form, SettingsError, kept};

/// One agent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    /// One of these is enough.
    pub(crate) keys: &'static [Key],
    /// The agent gets a part of each of these files in its home behind the wall, where they exist.
    pub(crate) config: &'static [Config],
    /// What it is told: that it is behind a wall, where it reaches its model and nothing else.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// What it writes into the workspace for itself. `--apply` leaves it out.
    pub(crate) own: &'static [&'static str],
}

/// A file in a person's home, and what of it an agent may see.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) path: &'static str,
    pub(crate) form: Form,
}

const fn config(path: &'static str, form: Form) -> Config {
    Config { path, form }
}

/// A key of a model's provider, which only the gateway knows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The name of the secret that it is kept as.
    pub(crate) secret: &'static str,
    /// Where it is taken from, unless a person has named a secret for it.
    pub(crate) variable: &'static str,
    /// Where the agent looks for it.
    pub(crate) inside: &'static str,
    /// The only host that sees it, and the header in which it stands.
    pub(crate) host: &'static str,
    pub(crate) header: &'static str,
    /// What keys of this provider begin with; agents check it.
    pub(crate) prefix: &'static str,
}

const ANTHROPIC: Key = Key {
    secret: "anthropic-api-key",
    variable: "ANTHROPIC_API_KEY",
    inside: "ANTHROPIC_API_KEY",
    host: "api.anthropic.com",
    header: "x-api-key",
    prefix: "sk-ant-",
};
const OPENAI: Key = Key {
    secret: "openai-api-key",
    variable: "OPENAI_API_KEY",
    inside: "OPENAI_API_KEY",
    host: "api.openai.com",
    header: "authorization",
    prefix: "sk-",
};
/// Codex takes a key from no other variable.
const CODEX: Key = Key { secret: "codex-api-key", inside: "CODEX_API_KEY", ..OPENAI };
const GEMINI: Key = Key {
    secret: "gemini-api-key",
    variable: "GEMINI_API_KEY",
    inside: "GEMINI_API_KEY",
    host: "generativelanguage.googleapis.com",
    header: "x-goog-api-key",
    prefix: "",
};

pub(crate) const PRESETS: [Preset; 4] = [
    Preset {
        name: "claude-code",
        keys: &[ANTHROPIC],
        config: &[
            config(
                ".claude/settings.json",
                Form::Json(&[
                    "model",
                    "theme",
                    "permissions",
                    "outputStyle",
                    "language",
                    "includeCoAuthoredBy",
                    "alwaysThinkingEnabled",
                    "cleanupPeriodDays",
                ]),
            ),
            config(".claude/CLAUDE.md", Form::Prose),
        ],
        // No reports, feedback or updates: they go to the model's host, too, with the same key.
        env: &[("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")],
        own: &[],
    },
    Preset {
        name: "codex",
        keys: &[CODEX],
        config: &[
            config(
                ".codex/config.toml",
                Form::Toml(&[
                    "model",
                    "model_reasoning_effort",
                    "model_reasoning_summary",
                    "model_verbosity",
                    "approval_policy",
                    "sandbox_mode",
                    "personality",
                    "hide_agent_reasoning",
                    "tui",
                ]),
            ),
            config(".codex/AGENTS.md", Form::Prose),
        ],
        env: &[],
        own: &[],
    },
    Preset {
        name: "gemini",
        keys: &[GEMINI],
        config: &[
            config(
                ".gemini/settings.json",
                Form::Json(&[
                    "theme",
                    "model",
                    "vimMode",
                    "preferredEditor",
                    "selectedAuthType",
                    "security.auth.selectedType",
                    "ui.theme",
                    "general.vimMode",
                    "general.preferredEditor",
                ]),
            ),
            config(".gemini/GEMINI.md", Form::Prose),
        ],
        // It would ask each time whether to trust the workspace: behind the wall it sees a copy.
        env: &[("GEMINI_CLI_TRUST_WORKSPACE", "true")],
        own: &[],
    },
    Preset {
        name: "aider",
        keys: &[ANTHROPIC, OPENAI, GEMINI],
        config: &[config(
            ".aider.conf.yml",
            Form::YamlLines(&[
                "model",
                "weak-model",
                "editor-model",
                "edit-format",
                "editor-edit-format",
                "architect",
                "auto-accept-architect",
                "auto-commits",
                "dirty-commits",
                "attribute-author",
                "attribute-committer",
                "auto-lint",
                "auto-test",
                "cache-prompts",
                "chat-language",
                "code-theme",
                "dark-mode",
                "light-mode",
                "map-tokens",
                "pretty",
                "reasoning-effort",
                "show-diffs",
                "stream",
                "vim",
            ]),
        )],
        // It would look for updates, prices and where to report to, and reach none of them.
        env: &[
            ("AIDER_CHECK_UPDATE", "false"),
            ("AIDER_ANALYTICS", "false"),
            ("AIDER_GITIGNORE", "false"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ],
        own: &[
            ".aider.chat.history.md",
            ".aider.input.history",
            ".aider.tags.cache.v3",
            ".aider.tags.cache.v4",
        ],
    },
];

impl Preset {
    /// For the command line, which says what there is if the name is wrong.
    pub(crate) fn named(name: &str) -> Result<&'static Preset, String> {
        let known = || PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
        let found = PRESETS.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| format!("no preset has this name; there are {}", known()))
    }

    /// Where the agent's home is behind the wall.
    pub(crate) fn home() -> PathBuf {
        PathBuf::from("/tmp/agent")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_wrong_is_answered_with_those_that_are_right() {
        assert_eq!(Preset::named("codex").unwrap().keys, [CODEX]);
        let error = Preset::named("cursor").unwrap_err();
        for preset in &PRESETS {
            assert!(error.contains(preset.name), "{error}");
        }
    }

    #[test]
    fn no_file_with_a_key_is_copied() {
        for Config { path, form } in PRESETS.iter().flat_map(|preset| preset.config) {
            let keys = match form {
                Form::Json(keys) | Form::Toml(keys) | Form::YamlLines(keys) => keys,
                Form::Prose => &[][..],
            };
            for key in keys {
                for word in ["env", "secret", "header", "passw", "helper", "api"] {
                    assert!(!key.contains(word), "{key}");
                }
            }
            for word in ["auth", "credential", "oauth", "token", ".env", ".claude.json"] {
                assert!(!path.contains(word), "{path}");
            }
            assert!(!path.starts_with('/') && !path.contains(".."), "{path}");
        }
    }
}

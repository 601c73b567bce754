//! What there is to say about a run that did not simply end.

use ringwall_spec::{ChangeSummary, Ending, Limits, Outcome, SandboxId, show_bytes, show_duration};

/// Why the command was ended, and what to change; `None` when it ended by itself.
pub(crate) fn explain(outcome: &Outcome, limits: &Limits) -> Option<String> {
    match outcome.ending {
        Ending::Exited { .. } | Ending::Signaled { .. } => None,
        Ending::Timeout => Some(format!(
            "the time limit of {} was reached and everything was killed; allow more with --timeout",
            show_duration(limits.timeout)
        )),
        Ending::Oom => {
            let peak = outcome.usage.peak_memory_bytes;
            let peak = peak.map(|bytes| format!(" (peak {})", show_bytes(bytes)));
            Some(format!(
                "out of memory: the limit of {} was reached{}; allow more with --memory",
                show_bytes(limits.memory_bytes),
                peak.unwrap_or_default()
            ))
        }
        Ending::OutputLimit => Some(format!(
            "more than {} of output, everything was killed; allow more with --output-limit",
            show_bytes(limits.output_bytes)
        )),
        Ending::Stopped => Some("stopped on request before it had finished".to_owned()),
    }
}

/// Where to look at what the job did to its workspace; `None` when it did nothing.
pub(crate) fn hint_at_changes(id: &SandboxId, changes: Option<ChangeSummary>) -> Option<String> {
    let changes = changes.filter(|changes| !changes.is_empty())?;
    let count = changes.added + changes.modified + changes.deleted;
    let files = if count == 1 { "file" } else { "files" };
    Some(format!(
        "{count} {files} changed in the workspace: ringwall diff {id}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwall_spec::Usage;

    fn ended(ending: Ending) -> Outcome {
        Outcome {
            id: SandboxId::from_random([0; 12]),
            wall: "process".parse().unwrap(),
            ending,
            usage: Usage {
                peak_memory_bytes: Some(512 << 20),
                ..Usage::default()
            },
            limits: Vec::new(),
            evidence: Vec::new(),
            changes: None,
        }
    }

    #[test]
    fn a_command_that_ended_by_itself_needs_no_words() {
        assert_eq!(
            explain(&ended(Ending::Exited { code: 3 }), &Limits::default()),
            None
        );
        assert_eq!(
            explain(&ended(Ending::Signaled { signal: 11 }), &Limits::default()),
            None
        );
    }

    #[test]
    fn a_reached_limit_is_named_with_the_flag_that_raises_it() {
        let cases = [
            (Ending::Timeout, "30s", "--timeout"),
            (Ending::Oom, "512M", "--memory"),
            (Ending::OutputLimit, "64M", "--output-limit"),
        ];
        for (ending, value, flag) in cases {
            let text = explain(&ended(ending), &Limits::default()).unwrap();
            assert!(text.contains(value) && text.contains(flag), "{text}");
        }
    }

    #[test]
    fn only_real_changes_are_hinted_at() {
        let id = SandboxId::from_random([0; 12]);
        assert_eq!(hint_at_changes(&id, None), None);
        assert_eq!(hint_at_changes(&id, Some(ChangeSummary::default())), None);
        let one = ChangeSummary {
            deleted: 1,
            ..ChangeSummary::default()
        };
        let hint = hint_at_changes(&id, Some(one)).unwrap();
        assert_eq!(
            hint,
            "1 file changed in the workspace: ringwall diff aaaaaaaaaaaa"
        );
    }
}

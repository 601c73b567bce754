//! What there is to say about a run that did not simply end.

use ringwall_spec::{ChangeSummary, Ending, Limits, SandboxId, Usage, show_bytes, show_duration};

/// Why the command was ended, and what to change; `None` when it ended by itself.
pub(crate) fn explain(ending: Ending, usage: Usage, limits: &Limits) -> Option<String> {
    match ending {
        Ending::Exited { .. } | Ending::Signaled { .. } => None,
        Ending::Timeout => Some(format!(
            "the time limit of {} was reached and the command was killed with all it started; allow more with --timeout",
            show_duration(limits.timeout)
        )),
        Ending::Oom => {
            let peak = usage.peak_memory_bytes;
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
        Ending::GuestLost => Some(
            "the microVM ended by itself: its kernel panicked or was told to power off".to_owned(),
        ),
    }
}

/// Where to look at what the job did to its workspace; `None` when it did nothing.
pub(crate) fn hint_at_changes(id: &SandboxId, changes: Option<ChangeSummary>) -> Option<String> {
    let changes = changes.filter(|changes| !changes.is_empty())?;
    let count = changes.added + changes.modified + changes.deleted;
    let files = if count == 1 { "file" } else { "files" };
    Some(format!("{count} {files} changed: ringwall diff {id}, ringwall apply {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(ending: Ending) -> Option<String> {
        let peak_memory_bytes = Some(512 << 20);
        let usage = Usage { peak_memory_bytes, ..Usage::default() };
        explain(ending, usage, &Limits::default())
    }

    #[test]
    fn a_command_that_ended_by_itself_needs_no_words() {
        assert_eq!(said_of(Ending::Exited { code: 3 }), None);
        assert_eq!(said_of(Ending::Signaled { signal: 11 }), None);
    }

    #[test]
    fn a_reached_limit_is_named_with_the_flag_that_raises_it() {
        let cases = [
            (Ending::Timeout, "30s", "--timeout"),
            (Ending::Oom, "512M", "--memory"),
            (Ending::OutputLimit, "64M", "--output-limit"),
        ];
        for (ending, value, flag) in cases {
            let text = said_of(ending).unwrap();
            assert!(text.contains(value) && text.contains(flag), "{text}");
        }
    }

    #[test]
    fn only_real_changes_are_hinted_at() {
        let id = SandboxId::from_random([0; 12]);
        assert_eq!(hint_at_changes(&id, None), None);
        assert_eq!(hint_at_changes(&id, Some(ChangeSummary::default())), None);
        let one = ChangeSummary { deleted: 1, ..ChangeSummary::default() };
        let hint = hint_at_changes(&id, Some(one)).unwrap();
        assert_eq!(hint, "1 file changed: ringwall diff aaaaaaaaaaaa, ringwall apply aaaaaaaaaaaa");
    }
}

//! After the job: take the wall down, keep what must be kept, say how it was.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ringwall_spec::{ChangeSummary, Ending, Limits, Outcome, Usage, WorkspaceMode};
use ringwall_wire::{Client, ClientError};
use ringwall_workspace::{Bounds, Changes, Copied, Periods, Upper};
use rustix::fs::{Mode, OFlags};

use crate::config::Engine;
use crate::keep::with_causes;
use crate::ledger::{self, LedgerError};
use crate::record::{Record, RecordError, RecordKind};
use crate::rights::History;
use crate::sandbox::Sandbox;
use crate::tools::ToolHost;
use crate::watchdog::Watchdog;
use crate::workspace_copy::Sink;

/// Changes that are not collected by then never will be.
pub(crate) const COPY_PATIENCE: Duration = Duration::from_secs(120);

const HUNG_PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(
        "the sandbox's processes were killed and are still there, held up in the kernel; \
         `dmesg` may say why, and `ringwall gc` removes the rest when they have ended"
    )]
    StillThere,
    #[error("the changes in the workspace could not be kept: {0}")]
    Collect(#[from] ringwall_workspace::CollectError),
    #[error("cannot read the write paths of the sandbox, so its changes are lost")]
    Rights(#[source] std::io::Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("cannot read the changes in the workspace")]
    Scratch(#[source] std::io::Error),
    #[error("cannot read the changes in the workspace from the guest, so they are lost")]
    Guest(#[source] ClientError),
    #[error("the guest sent malformed changes of the workspace, so they are lost")]
    Copied(#[source] std::io::Error),
}

impl Sandbox {
    /// Ends the sandbox. Changes of a copy-on-write workspace are kept for `diff` and `apply`.
    pub fn settle(mut self, ending: Ending) -> Result<Outcome, SettleError> {
        let wall_ms = whole_millis(self.raised.elapsed());
        // A guest's files end with it.
        let copied = self.copy_changes_out(patience(ending));
        self.tear_down();
        if self.still_there {
            // What may still write cannot be collected. `gc` finds the record and tries again.
            self.unraised = Some(SettleError::StillThere.to_string());
            return Err(SettleError::StillThere);
        }
        let (copied, changes_lost) = match copied {
            // How the job ended says more than that its guest has no changes to show.
            Err(error) if !matches!(ending, Ending::Exited { .. }) => {
                (None, Some(with_causes(&error)))
            }
            copied => (copied?, None),
        };
        let changes = match copied {
            Some(mut copied) => {
                let upper = copied.finish().map_err(SettleError::Copied)?;
                self.collect_changes(upper.as_fd().into())?
            }
            None => match &self.scratch {
                Some(scratch) if self.keeps_changes() && self.guest.is_none() => {
                    let upper = self.upper().map_err(SettleError::Scratch)?;
                    let copied = copied_into(scratch).map_err(SettleError::Scratch)?;
                    self.collect_changes(Upper { dir: upper.as_fd(), copied })?
                }
                _ => None,
            },
        };
        let outcome = Outcome {
            id: self.id.clone(),
            wall: self.spec.wall.clone(),
            ending,
            usage: self.usage(wall_ms),
            limits: self.placement.kept.clone(),
            evidence: std::mem::take(&mut self.evidence),
            changes,
            changes_lost,
            uncounted: self.watchdog.as_ref().and_then(Watchdog::uncounted),
            tools: self.tools.as_ref().map(ToolHost::totals),
        };
        self.record_end(&outcome)?;
        let clean = self.remove_group();
        let Some(mut record) = self.record.take() else {
            return Ok(outcome);
        };
        if !clean {
            // Left as it is, without an outcome: `gc` takes it for abandoned and tries again.
            return Ok(outcome);
        }
        let changed = changes.is_some_and(|summary| !summary.is_empty());
        // A run leaves nothing behind but changes; a living sandbox keeps its record until `rm`.
        if changed || record.record.kind == RecordKind::Living {
            record.record.outcome = Some(outcome.clone());
            record.save()?;
            let _ = std::fs::remove_file(record.record.socket_path());
        } else {
            record.remove()?;
        }
        Ok(outcome)
    }

    fn record_end(&mut self, outcome: &Outcome) -> Result<(), SettleError> {
        let Some(ledger) = self.ledger.take() else {
            return Ok(());
        };
        let mut records = self.unwritten_evidence(&outcome.evidence);
        records.extend(
            self.entry.take().map(|call| call.end(outcome.ending, outcome.usage, outcome.changes)),
        );
        records.push(ledger::ended(outcome));
        Ok(ledger.record(records)?)
    }

    fn usage(&self, wall_ms: u64) -> Usage {
        let group = self.group.as_ref().and_then(|group| group.usage().ok());
        let watched = self.watchdog.as_ref().map(Watchdog::peak_bytes);
        let watched = watched.filter(|peak| *peak > 0);
        let network = self.network_usage();
        Usage {
            wall_ms,
            raise_ms: millis(self.raised.duration_since(self.begun)),
            cpu_ms: group
                .and_then(|usage| usage.cpu_micros)
                .map(|micros| micros.div_ceil(1000))
                .or(self.reaped_cpu.map(whole_millis)),
            peak_memory_bytes: group.and_then(|usage| usage.peak_memory_bytes).or(watched),
            output_bytes: 0,
            sent_bytes: network.map(|usage| usage.bytes_up),
            received_bytes: network.map(|usage| usage.bytes_down),
        }
    }

    fn keeps_changes(&self) -> bool {
        let workspace = self.spec.workspace.as_ref();
        workspace.is_some_and(|workspace| workspace.mode == WorkspaceMode::CopyOnWrite)
    }

    /// Takes the changes out of a guest, while it runs.
    fn copy_changes_out(&self, patience: Duration) -> Result<Option<Sink>, SettleError> {
        if !self.keeps_changes() {
            return Ok(None);
        }
        self.copy_out(patience, |guest, sink, most| guest.take_workspace(sink, most))
    }

    /// The end of a period of rights: notes its changes, while nothing can be written.
    pub(crate) fn look_at_changes(&self, periods: &mut Periods) -> Result<(), SettleError> {
        let look = |guest: &Client, sink: &mut Sink, most| guest.look_at_workspace(sink, most);
        let upper = match (self.copy_out(COPY_PATIENCE, look)?, &self.scratch) {
            (Some(mut copied), _) => {
                let upper = copied.finish().map_err(SettleError::Copied)?;
                return Ok(periods.look(upper.as_fd(), &self.bounds())?);
            }
            (None, Some(scratch)) => {
                open_dir(scratch, "workspace").map_err(SettleError::Scratch)?
            }
            (None, None) => return Ok(()),
        };
        Ok(periods.look(upper.as_fd(), &self.bounds())?)
    }

    fn copy_out(
        &self,
        patience: Duration,
        copy: impl FnOnce(&Client, &mut Sink, u64) -> Result<u64, ClientError>,
    ) -> Result<Option<Sink>, SettleError> {
        let (Some(guest), Some(record)) = (&self.guest, &self.record) else {
            return Ok(None);
        };
        record.make_dir().map_err(SettleError::Scratch)?;
        let Limits { disk_bytes, disk_inodes, .. } = *self.limits();
        let mut sink = Sink::new(&record.record.upper_dir(), disk_bytes, disk_inodes)
            .map_err(SettleError::Scratch)?;
        // The headers of the stream come on top of the bytes that the guest can store.
        let most = disk_bytes.saturating_add(disk_inodes.saturating_mul(8 << 10));
        let guest = guest.until(Instant::now() + patience);
        copy(&guest, &mut sink, most).map_err(SettleError::Guest)?;
        Ok(Some(sink))
    }

    fn bounds(&self) -> Bounds {
        let Limits { disk_bytes, disk_inodes, .. } = *self.limits();
        Bounds {
            max_total_bytes: disk_bytes,
            max_entries: disk_inodes,
            max_hash_bytes: disk_bytes,
            ..Bounds::default()
        }
    }

    /// Reads the upper directory of the workspace, now that nothing can change it any more.
    fn collect_changes(&mut self, upper: Upper<'_>) -> Result<Option<ChangeSummary>, SettleError> {
        let (Some(workspace), Some(record)) = (&self.placement.workspace, &self.record) else {
            return Ok(None);
        };
        record.make_dir().map_err(SettleError::Scratch)?;
        let bounds = self.bounds();
        let periods = match self.periods.take() {
            Some(mut periods) => {
                periods.look(upper.dir, &bounds)?;
                periods
            }
            None => {
                let history = History::load(&record.record).map_err(SettleError::Rights)?;
                Periods::always(history.now)
            }
        };
        let hidden = match &self.hiding {
            Some(hiding) => hiding.hidden(),
            None => self.placement.hidden.clone(),
        };
        let changes = ringwall_workspace::collect(
            upper,
            workspace,
            &hidden,
            &periods,
            &record.record.changes_dir(),
            &bounds,
        )?;
        Ok(Some(changes.summary()))
    }
}

/// A guest that was too slow already may hang.
fn patience(ending: Ending) -> Duration {
    match ending {
        Ending::Timeout => HUNG_PATIENCE,
        _ => COPY_PATIENCE,
    }
}

pub(crate) fn open_dir(scratch: &OwnedFd, name: &str) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(scratch, name, flags, Mode::empty())?)
}

/// What the workspace's upper directory began with, where the kernel's overlays would not do.
fn copied_into(scratch: &OwnedFd) -> std::io::Result<Option<Copied>> {
    let work = open_dir(scratch, "workspace-work")?;
    let Some(entries) = ringwall_linux::mount::copied(work.as_fd())? else {
        return Ok(None);
    };
    let mut copied = Copied::default();
    for entry in entries {
        copied.note(&entry.path, entry.inode, entry.changed);
    }
    Ok(Some(copied))
}

/// For prices: a part of a millisecond counts as one.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Engine {
    /// The kept changes of a sandbox that has ended.
    pub fn changes(&self, record: &Record) -> Result<Changes, ringwall_workspace::LoadError> {
        Changes::load(&record.changes_dir())
    }
}

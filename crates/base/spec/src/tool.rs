//! Calls of WASM tools: what limits them, how they end, what they cost.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The identity of a tool: the SHA-256 of its `.wasm` file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ToolDigest(pub [u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no digest; write sha256: and 64 lower-case hexadecimal digits")]
pub struct ToolDigestError(String);

/// What kind of program a `.wasm` file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolKind {
    /// Exports the tool interface: JSON in, JSON out.
    Component,
    /// A WASI 0.2 command: arguments, standard streams, exit code.
    CommandComponent,
    /// A WASI preview 1 command module.
    CommandModule,
}

/// Every call has every limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolLimits {
    pub time: Duration,
    /// All linear memories together.
    pub memory_bytes: u64,
    /// All tables together.
    pub table_elements: u32,
    /// Roughly one unit per instruction.
    pub fuel: u64,
    /// Standard output and standard error, or the result and the log, each.
    pub output_bytes: u64,
    /// How often the tool may ask something of its host.
    pub host_calls: u64,
}

/// How a tool may use a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DirAccess {
    #[serde(rename = "ro")]
    Read,
    #[serde(rename = "rw")]
    Write,
}

/// What one call used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolMeter {
    pub fuel: u64,
    pub wall_us: u64,
    /// The peak of the linear memories and tables.
    pub peak_memory_bytes: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub host_calls: u64,
    /// To and from the network.
    #[serde(default)]
    pub sent_bytes: u64,
    #[serde(default)]
    pub received_bytes: u64,
}

/// What all calls of one host, or in one sandbox, used together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolTotals {
    pub calls: u64,
    pub failures: u64,
    pub fuel: u64,
    pub wall_us: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub wardens_started: u64,
    pub wardens_lost: u64,
}

/// Which processors compiled code is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeFor {
    /// The one that it is compiled on, with all that this one can do.
    #[default]
    ThisProcessor,
    /// Every processor of this architecture: a guest's may be able to do less than its host's.
    AnyProcessor,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolStatus {
    /// A component gave its result.
    Returned,
    /// A component gave its own kind of failure.
    Failed {
        code: String,
        message: String,
    },
    /// A command came to its end.
    Exited {
        code: u8,
    },
    /// The code did something that no program can go on from.
    Trapped {
        reason: String,
    },
    Timeout,
    OutOfFuel,
    MemoryLimit,
    StackOverflow,
    OutputLimit,
    HostCallLimit,
    /// It asked its host for something that no policy grants.
    Denied {
        what: String,
    },
}

// === impl ToolDigest ===

impl ToolDigest {
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for ToolDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for ToolDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ToolDigest {
    type Err = ToolDigestError;

    fn from_str(text: &str) -> Result<Self, ToolDigestError> {
        let wrong = || ToolDigestError(text.to_owned());
        let digits = text.strip_prefix("sha256:").ok_or_else(wrong)?.as_bytes();
        let value = |digit: &u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return Err(wrong()) };
            *byte = (value(high).ok_or_else(wrong)? << 4) | value(low).ok_or_else(wrong)?;
        }
        Ok(ToolDigest(bytes))
    }
}

impl From<ToolDigest> for String {
    fn from(digest: ToolDigest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for ToolDigest {
    type Error = ToolDigestError;

    fn try_from(text: String) -> Result<Self, ToolDigestError> {
        text.parse()
    }
}

// === impl ToolLimits ===

impl Default for ToolLimits {
    fn default() -> Self {
        ToolLimits {
            time: Duration::from_secs(2),
            memory_bytes: 64 << 20,
            table_elements: 10_000,
            fuel: 10_000_000_000,
            output_bytes: 1 << 20,
            host_calls: 1_000_000,
        }
    }
}

impl ToolLimits {
    /// The limits that no call may exceed.
    pub const MOST: ToolLimits = ToolLimits {
        time: Duration::from_secs(300),
        memory_bytes: 512 << 20,
        table_elements: 200_000,
        fuel: 1 << 50,
        output_bytes: 16 << 20,
        host_calls: 1 << 32,
    };

    /// Each limit, or the most that is allowed of it.
    #[must_use]
    pub fn capped(self) -> ToolLimits {
        let most = ToolLimits::MOST;
        ToolLimits {
            time: self.time.min(most.time),
            memory_bytes: self.memory_bytes.min(most.memory_bytes),
            table_elements: self.table_elements.min(most.table_elements),
            fuel: self.fuel.min(most.fuel),
            output_bytes: self.output_bytes.min(most.output_bytes),
            host_calls: self.host_calls.min(most.host_calls),
        }
    }
}

// === impl ToolStatus ===

impl ToolStatus {
    /// The exit code that the command line passes on.
    pub fn exit_code(&self) -> u8 {
        match self {
            ToolStatus::Returned => 0,
            ToolStatus::Exited { code } => *code,
            ToolStatus::Failed { .. } | ToolStatus::Denied { .. } => 1,
            ToolStatus::Timeout => 124,
            ToolStatus::Trapped { .. }
            | ToolStatus::OutOfFuel
            | ToolStatus::MemoryLimit
            | ToolStatus::StackOverflow
            | ToolStatus::OutputLimit
            | ToolStatus::HostCallLimit => 137,
        }
    }

    pub fn is_success(&self) -> bool {
        self.exit_code() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_as_it_was_written() {
        let digest = ToolDigest(std::array::from_fn(|index| index as u8 * 8));
        assert_eq!(digest.to_string().parse(), Ok(digest));
    }

    #[test]
    fn what_only_looks_like_a_digest_is_refused() {
        let hex = "0".repeat(64);
        for bad in [
            String::new(),
            hex.clone(),
            format!("sha512:{hex}"),
            format!("sha256:{hex}0"),
            format!("sha256:{}", hex.replace('0', "G")),
            format!("sha256:{}", "A".repeat(64)),
        ] {
            assert!(bad.parse::<ToolDigest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn no_limit_passes_the_ceiling() {
        let asked = ToolLimits { time: Duration::MAX, fuel: u64::MAX, ..ToolLimits::default() };
        let capped = asked.capped();
        assert_eq!((capped.time, capped.fuel), (ToolLimits::MOST.time, ToolLimits::MOST.fuel));
        assert_eq!(capped.memory_bytes, asked.memory_bytes);
    }
}

//! Faults that can be injected into a replica.

use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::answer::EarlyEnd;

/// Fault of a replica. A replica has one fault at a time; [`Fault::None`] heals it.
///
/// As JSON: `{"kind": "status", "code": 503, "retry_after_s": 2, "probability": 0.5}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// No fault. After `Crash` or `Refuse` the replica listens again, after `Crash` with an empty
    /// cache.
    #[default]
    None,
    /// The process is gone: listener closed, connections reset, cache and stored responses lost.
    Crash,
    /// The listener is closed, so the kernel refuses new connections; open ones keep working.
    Refuse,
    /// Connections are accepted and requests read, but never answered, not even after the fault is
    /// over.
    Hang,
    /// The event loop is blocked: nothing is read or answered, health checks and control requests
    /// included. Once the fault is over, everything goes on as if nothing had happened.
    Freeze,
    /// Every step takes this many times longer.
    Slow {
        /// Factor of slowness: 2.0 is half as fast; from 0.001 to 1,000,000.
        factor: f64,
    },
    /// Requests are answered with bytes that are not HTTP, then the connection is closed.
    Garbage,
    /// Inference requests are answered with an error, without any work.
    Status {
        /// HTTP status from 400 to 599, such as 503 or 429.
        code: u16,
        /// Value of the `Retry-After` header in seconds; no header if left out.
        #[serde(default)]
        retry_after_s: Option<u64>,
        /// Share of the requests that fail, 0 to 1.
        #[serde(default = "always")]
        probability: f64,
    },
    /// The connection is closed in the middle of a reply.
    Cut {
        /// Number of events of a stream that are sent before. A reply that is no stream is cut
        /// after half of its body.
        after_events: u64,
        /// Way in which the connection is closed.
        #[serde(default)]
        close: Close,
    },
    /// The reply stops, but the connection stays open. The reply does not go on when the fault is
    /// over.
    Stall {
        /// Number of events that are sent before, as in [`Fault::Cut`].
        after_events: u64,
    },
    /// Answers end early with the reason `abort`, in a reply that is whole otherwise: usage and
    /// `[DONE]` included. vLLM does so when it is stopped.
    Abort {
        /// Number of events of a stream that are sent before the end; the token that is being sent
        /// is completed. A reply that is no stream ends after so many tokens.
        after_events: u64,
    },
    /// Answers end early without a reason: a stream with `[DONE]` alone. The connection ends in
    /// order.
    DoneEarly {
        /// Number of events that are sent before, as in [`Fault::Abort`].
        after_events: u64,
    },
    /// Replies are 200 without any token: a stream has nothing but `[DONE]`, another reply has no
    /// choices.
    Empty,
    /// A request kills the replica: it is answered with the error of an engine that died, and the
    /// replica crashes until it is healed.
    Die {
        /// Number of events of a stream that are sent before, as in [`Fault::Abort`]. A reply that
        /// is no stream is replaced.
        after_events: u64,
        /// Sign of the death that the request gets.
        #[serde(default)]
        with: DeathSign,
        /// True if only requests whose body contains the word `POISON` kill.
        #[serde(default)]
        only_poisoned: bool,
    },
    /// Running requests go on and health checks succeed, but each new inference request gets the
    /// error 500 of an engine that shuts down. vLLM does so after SIGTERM.
    Draining,
}

/// Sign that a request gets of the death of its replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeathSign {
    /// An error event, or a reply 500, shortly before the connection is reset.
    #[default]
    Error,
    /// None: the connection is reset.
    Silence,
}

/// Way in which a connection ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Close {
    /// TCP reset, as when a process or machine dies.
    #[default]
    Reset,
    /// Orderly TCP close before the reply is complete.
    Fin,
}

/// Error of setting a fault.
#[derive(Debug, Error)]
pub enum FaultError {
    /// A number is out of its range.
    #[error("{field} is out of range: {value}")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: f64,
    },
    /// The replica could not listen again.
    #[error("cannot listen again: {0}")]
    Listen(#[from] io::Error),
    /// The emulator is shutting down.
    #[error("the emulator is shutting down")]
    ShuttingDown,
}

impl Fault {
    /// Checks the numbers of a fault.
    ///
    /// # Errors
    /// Returns an error if a number is out of range.
    pub(crate) fn check(&self) -> Result<(), FaultError> {
        let in_range = |field, value, range: std::ops::RangeInclusive<f64>| {
            let result = range.contains(&value).then_some(());
            result.ok_or(FaultError::OutOfRange { field, value })
        };
        match *self {
            Self::Slow { factor } => in_range("factor", factor, 0.001..=1e6),
            Self::Status { code, probability, .. } => {
                in_range("code", f64::from(code), 400.0..=599.0)?;
                in_range("probability", probability, 0.0..=1.0)
            }
            Self::None
            | Self::Crash
            | Self::Refuse
            | Self::Hang
            | Self::Freeze
            | Self::Garbage
            | Self::Cut { .. }
            | Self::Stall { .. }
            | Self::Abort { .. }
            | Self::DoneEarly { .. }
            | Self::Empty
            | Self::Die { .. }
            | Self::Draining => Ok(()),
        }
    }

    /// Returns the end that an answer gets after `sent` events or tokens; `None` if it goes on.
    pub(crate) fn early_end(&self, sent: u64) -> Option<EarlyEnd> {
        match *self {
            Self::Abort { after_events } if sent >= after_events => Some(EarlyEnd::Aborted),
            Self::DoneEarly { after_events } if sent >= after_events => Some(EarlyEnd::Unexplained),
            Self::Empty if sent == 0 => Some(EarlyEnd::Unexplained),
            _ => None,
        }
    }

    /// Returns how many times slower than healthy the engine runs.
    pub(crate) fn slowdown(&self) -> f64 {
        match self {
            Self::Slow { factor } => *factor,
            _ => 1.0,
        }
    }
}

fn always() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Fault, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn json_names_every_fault() {
        let status = Fault::Status { code: 429, retry_after_s: Some(2), probability: 0.5 };
        let cases = [
            (r#"{"kind":"none"}"#, Fault::None),
            (r#"{"kind":"crash"}"#, Fault::Crash),
            (r#"{"kind":"refuse"}"#, Fault::Refuse),
            (r#"{"kind":"hang"}"#, Fault::Hang),
            (r#"{"kind":"freeze"}"#, Fault::Freeze),
            (r#"{"kind":"slow","factor":3}"#, Fault::Slow { factor: 3.0 }),
            (r#"{"kind":"garbage"}"#, Fault::Garbage),
            (r#"{"kind":"status","code":429,"retry_after_s":2,"probability":0.5}"#, status),
            (
                r#"{"kind":"cut","after_events":3,"close":"fin"}"#,
                Fault::Cut { after_events: 3, close: Close::Fin },
            ),
            (r#"{"kind":"stall","after_events":3}"#, Fault::Stall { after_events: 3 }),
            (r#"{"kind":"abort","after_events":3}"#, Fault::Abort { after_events: 3 }),
            (r#"{"kind":"done_early","after_events":3}"#, Fault::DoneEarly { after_events: 3 }),
            (r#"{"kind":"empty"}"#, Fault::Empty),
            (
                r#"{"kind":"die","after_events":3,"with":"silence","only_poisoned":true}"#,
                Fault::Die { after_events: 3, with: DeathSign::Silence, only_poisoned: true },
            ),
            (r#"{"kind":"draining"}"#, Fault::Draining),
        ];
        for (json, fault) in cases {
            assert_eq!(parse(json).unwrap(), fault, "{json}");
        }
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let status = Fault::Status { code: 500, retry_after_s: None, probability: 1.0 };
        assert_eq!(parse(r#"{"kind":"status","code":500}"#).unwrap(), status);
        let cut = Fault::Cut { after_events: 1, close: Close::Reset };
        assert_eq!(parse(r#"{"kind":"cut","after_events":1}"#).unwrap(), cut);
        let die = Fault::Die { after_events: 1, with: DeathSign::Error, only_poisoned: false };
        assert_eq!(parse(r#"{"kind":"die","after_events":1}"#).unwrap(), die);
    }

    #[test]
    fn misspelt_fields_and_numbers_out_of_range_are_refused() {
        assert!(parse(r#"{"kind":"slow","facter":3}"#).is_err());
        assert!(parse(r#"{"kind":"explode"}"#).is_err());
        assert!(Fault::Slow { factor: 0.0 }.check().is_err());
        assert!(Fault::Slow { factor: f64::NAN }.check().is_err());
        let status = |code, probability| Fault::Status { code, retry_after_s: None, probability };
        assert!(status(200, 1.0).check().is_err());
        assert!(status(503, 1.5).check().is_err());
        assert!(status(503, 0.5).check().is_ok());
    }
}

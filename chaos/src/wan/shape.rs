//! Shape of one direction of a link: delay, loss, rate and so on, and changes to it.

use serde::{Deserialize, Serialize};

/// Largest delay of any kind in milliseconds; above it a link is useless.
pub const DELAY_MS_MAX: f64 = 60_000.0;

/// Default queue of a rate limit in bytes: 20 ms at 100 Mbit/s.
pub const QUEUE_BYTES_DEFAULT: u64 = 256 * 1024;

/// Default time between two independent values of jitter, in milliseconds.
pub const JITTER_PERIOD_MS_DEFAULT: f64 = 50.0;

/// Default delay of a reordered packet in milliseconds: a few packets of a busy flow.
pub const REORDER_BY_MS_DEFAULT: f64 = 2.0;

const MS_IN_NS: f64 = 1e6;

/// Shape of one direction of a link. Shares are between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Delay of this direction in nanoseconds.
    pub delay_ns: u64,
    /// Standard deviation of the delay in nanoseconds.
    pub jitter_ns: u64,
    /// Time in nanoseconds between two independent values of jitter; in between it moves in a
    /// straight line.
    pub jitter_period_ns: u64,
    /// Share of packets that are lost.
    pub loss: f64,
    /// Mean number of packets lost one after another; 1 loses each independently.
    pub loss_burst: f64,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// Share of packets that others overtake.
    pub reorder: f64,
    /// Extra delay of those packets in nanoseconds.
    pub reorder_by_ns: u64,
    /// Share of packets with one flipped bit after the IP header.
    pub corrupt: f64,
    /// Rate limit in bytes a second; `None` is unlimited.
    pub rate_bytes: Option<u64>,
    /// Most bytes that wait for the rate limit; further packets are lost.
    pub queue_bytes_max: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            delay_ns: 0,
            jitter_ns: 0,
            jitter_period_ns: nanoseconds(JITTER_PERIOD_MS_DEFAULT),
            loss: 0.0,
            loss_burst: 1.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by_ns: nanoseconds(REORDER_BY_MS_DEFAULT),
            corrupt: 0.0,
            rate_bytes: None,
            queue_bytes_max: QUEUE_BYTES_DEFAULT,
        }
    }
}

/// Changes to a [`Shape`]; fields that are `None` stay.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ShapePatch {
    /// Round trip in milliseconds: each direction gets half.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// One-way delay in milliseconds.
    #[arg(long, conflicts_with = "rtt_ms")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Standard deviation of the delay in milliseconds.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    /// Milliseconds between two independent values of jitter (default 50).
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_period_ms: Option<f64>,
    /// Percent of packets that are lost.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<f64>,
    /// Mean number of packets lost one after another (default 1: independently).
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_burst: Option<f64>,
    /// Percent of packets that arrive twice.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_percent: Option<f64>,
    /// Percent of packets that others overtake.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder_percent: Option<f64>,
    /// Milliseconds by which those are late (default 2).
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder_by_ms: Option<f64>,
    /// Percent of packets with one flipped bit.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupt_percent: Option<f64>,
    /// Megabits a second; 0 is unlimited.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbit: Option<f64>,
    /// Bytes that may wait for the rate (default 262144).
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes_max: Option<u64>,
}

/// Error of a value that no link can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ShapeError {
    /// A number is outside its range.
    #[error("{field} is {value}, but must be between {least} and {most}")]
    Range {
        /// Name of the field in the config.
        field: &'static str,
        /// Value that was given.
        value: f64,
        /// Smallest value allowed.
        least: f64,
        /// Largest value allowed.
        most: f64,
    },
    /// Both fields of the delay were given.
    #[error("rtt_ms and delay_ms exclude each other: name one")]
    TwoDelays,
}

impl ShapePatch {
    /// Returns `base` with the changes.
    ///
    /// # Errors
    ///
    /// Returns [`ShapeError`] with the first value that no link can have.
    pub fn apply(&self, base: &Shape) -> Result<Shape, ShapeError> {
        if self.rtt_ms.is_some() && self.delay_ms.is_some() {
            return Err(ShapeError::TwoDelays);
        }
        let mut shape = *base;
        let half = milliseconds("rtt_ms", self.rtt_ms, 0.0)?.map(|rtt_ns| rtt_ns / 2);
        set(&mut shape.delay_ns, half);
        set(&mut shape.delay_ns, milliseconds("delay_ms", self.delay_ms, 0.0)?);
        set(&mut shape.jitter_ns, milliseconds("jitter_ms", self.jitter_ms, 0.0)?);
        let period = milliseconds("jitter_period_ms", self.jitter_period_ms, 1.0)?;
        set(&mut shape.jitter_period_ns, period);
        set(&mut shape.loss, share("loss_percent", self.loss_percent)?);
        set(&mut shape.loss_burst, in_range("loss_burst", self.loss_burst, 1.0, 10_000.0)?);
        set(&mut shape.duplicate, share("duplicate_percent", self.duplicate_percent)?);
        set(&mut shape.reorder, share("reorder_percent", self.reorder_percent)?);
        set(&mut shape.reorder_by_ns, milliseconds("reorder_by_ms", self.reorder_by_ms, 0.0)?);
        set(&mut shape.corrupt, share("corrupt_percent", self.corrupt_percent)?);
        set(&mut shape.rate_bytes, rate(self.rate_mbit)?);
        set(&mut shape.queue_bytes_max, self.queue_bytes_max);
        Ok(shape)
    }

    /// Returns true if the changes set the delay.
    #[must_use]
    pub fn names_delay(&self) -> bool {
        self.rtt_ms.is_some() || self.delay_ms.is_some()
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn milliseconds(
    field: &'static str,
    value: Option<f64>,
    least: f64,
) -> Result<Option<u64>, ShapeError> {
    Ok(in_range(field, value, least, DELAY_MS_MAX)?.map(nanoseconds))
}

fn share(field: &'static str, percent: Option<f64>) -> Result<Option<f64>, ShapeError> {
    Ok(in_range(field, percent, 0.0, 100.0)?.map(|percent| percent / 100.0))
}

fn rate(mbit: Option<f64>) -> Result<Option<Option<u64>>, ShapeError> {
    // Zero removes the limit.
    if mbit == Some(0.0) {
        return Ok(Some(None));
    }
    // Below a kilobit one packet takes longer than any timeout; above a terabit nothing waits.
    let mbit = in_range("rate_mbit", mbit, 0.001, 1e6)?;
    Ok(mbit.map(|mbit| Some(whole(mbit * 125_000.0))))
}

fn in_range(
    field: &'static str,
    value: Option<f64>,
    least: f64,
    most: f64,
) -> Result<Option<f64>, ShapeError> {
    match value {
        // The negated range check also refuses NaN.
        Some(value) if !(least..=most).contains(&value) => {
            Err(ShapeError::Range { field, value, least, most })
        }
        _ => Ok(value),
    }
}

/// Converts milliseconds to whole nanoseconds.
pub(crate) fn nanoseconds(milliseconds: f64) -> u64 {
    whole(milliseconds * MS_IN_NS)
}

/// Rounds `value`, which is neither negative nor above 2^53.
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        let base = Shape { loss: 0.25, ..Shape::default() };
        let patch = ShapePatch {
            rtt_ms: Some(80.0),
            rate_mbit: Some(8.0),
            duplicate_percent: Some(2.0),
            ..ShapePatch::default()
        };
        let expected = Shape {
            delay_ns: 40_000_000,
            rate_bytes: Some(1_000_000),
            duplicate: 0.02,
            loss: 0.25,
            ..Shape::default()
        };
        assert_eq!(patch.apply(&base), Ok(expected));
        let unlimited = ShapePatch { rate_mbit: Some(0.0), ..ShapePatch::default() };
        assert_eq!(unlimited.apply(&expected), Ok(Shape { rate_bytes: None, ..expected }));
    }

    #[test]
    fn what_no_link_can_have_is_refused_by_name() {
        let refused = |patch: ShapePatch| patch.apply(&Shape::default()).unwrap_err().to_string();
        assert_eq!(
            refused(ShapePatch { loss_percent: Some(101.0), ..ShapePatch::default() }),
            "loss_percent is 101, but must be between 0 and 100"
        );
        for patch in [
            ShapePatch { delay_ms: Some(-1.0), ..ShapePatch::default() },
            ShapePatch { jitter_ms: Some(f64::NAN), ..ShapePatch::default() },
            ShapePatch { loss_burst: Some(0.5), ..ShapePatch::default() },
            ShapePatch { rate_mbit: Some(0.0001), ..ShapePatch::default() },
        ] {
            assert!(refused(patch.clone()).contains("must be between"), "{patch:?}");
        }
        let two = ShapePatch { rtt_ms: Some(1.0), delay_ms: Some(1.0), ..ShapePatch::default() };
        assert!(refused(two).contains("exclude"));
    }
}

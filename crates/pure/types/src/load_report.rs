//! A replica's report of its own load.

use serde::{Deserialize, Serialize};

/// A report, scraped, pushed or sent along with a reply. A number that the server does not report
/// is `None`, and `None` never means idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadReport {
    /// Requests waiting in the replica's queue.
    pub queued: Option<f32>,
    /// Requests being worked on.
    pub running: Option<f32>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_use: Option<f32>,
    /// Share of time the GPU was busy, 0 to 1.
    pub gpu_use: Option<f32>,
    /// Share of the GPU's memory in use, 0 to 1.
    pub gpu_memory_use: Option<f32>,
    /// Work ahead of a new request by the replica's own count, in units of its choice.
    pub pending: Option<f32>,
}

impl LoadReport {
    /// Returns the name of the first field that can't be true, `None` if all can be. Numbers are
    /// finite and not negative, and shares are at most 1.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let fields = [
            ("queued", self.queued, f32::MAX),
            ("running", self.running, f32::MAX),
            ("kv_use", self.kv_use, 1.0),
            ("gpu_use", self.gpu_use, 1.0),
            ("gpu_memory_use", self.gpu_memory_use, 1.0),
            ("pending", self.pending, f32::MAX),
        ];
        // NaN lies in no range, so it is found as well.
        let is_bad = |number: Option<f32>, most: f32| {
            number.is_some_and(|number| !(0.0..=most).contains(&number))
        };
        fields.into_iter().find(|(_, number, most)| is_bad(*number, *most)).map(|(name, ..)| name)
    }

    /// Fills the fields that this report leaves open from `older`.
    #[must_use]
    pub fn over(self, older: Self) -> Self {
        Self {
            queued: self.queued.or(older.queued),
            running: self.running.or(older.running),
            kv_use: self.kv_use.or(older.kv_use),
            gpu_use: self.gpu_use.or(older.gpu_use),
            gpu_memory_use: self.gpu_memory_use.or(older.gpu_memory_use),
            pending: self.pending.or(older.pending),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_can_not_be_true_are_found() {
        let none = LoadReport::default();
        assert_eq!(LoadReport { pending: Some(-1.0), ..none }.fault(), Some("pending"));
        assert_eq!(LoadReport { queued: Some(f32::NAN), ..none }.fault(), Some("queued"));
        assert_eq!(LoadReport { running: Some(f32::INFINITY), ..none }.fault(), Some("running"));
        assert_eq!(LoadReport { kv_use: Some(85.0), ..none }.fault(), Some("kv_use"));
        let good = LoadReport { queued: Some(0.0), kv_use: Some(1.0), ..none };
        assert_eq!((good.fault(), none.fault()), (None, None));
    }
}

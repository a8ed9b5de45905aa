//! File of a day's usage.

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_usage::{UsageLines, Used};

use crate::spending::{halves, whole};

/// Usage of a day. [`UsageLines`] documents the fields of a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedDay(Vec<SavedLine>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedLine {
    tenant: Option<String>,
    key: Option<String>,
    model: Option<String>,
    requests: u64,
    errors: u64,
    prompt: u64,
    cached: u64,
    completion: u64,
    estimated: u64,
    /// Upper and lower half of the cost.
    cost: (u64, u64),
}

impl Wire for SavedDay {
    const KIND: u16 = 0x0801;
    const VERSION: u16 = 1;
    // As many lines as there may be, each with three long names and eight long numbers.
    const BYTES_MAX: usize = 16 << 20;
}

impl SavedDay {
    pub(crate) fn of(lines: &UsageLines) -> Self {
        let line = |line: spillway_usage::UsageLine| {
            let Used { requests, errors, prompt, cached, completion, estimated, cost } = line.used;
            SavedLine {
                tenant: line.tenant,
                key: line.key,
                model: line.model,
                requests,
                errors,
                prompt,
                cached,
                completion,
                estimated,
                cost: halves(cost),
            }
        };
        Self(lines.lines().into_iter().map(line).collect())
    }

    pub(crate) fn into_lines(self) -> UsageLines {
        let mut lines = UsageLines::default();
        for line in self.0 {
            let SavedLine { requests, errors, prompt, cached, completion, estimated, .. } = line;
            let cost = whole(line.cost);
            let used = Used { requests, errors, prompt, cached, completion, estimated, cost };
            let key =
                (line.tenant.map(Into::into), line.key.map(Into::into), line.model.map(Into::into));
            lines.add(key, &used);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use spillway_codec::golden;
    use spillway_usage::Money;

    use super::*;

    fn lines() -> UsageLines {
        let used = Used {
            requests: 3,
            errors: 1,
            prompt: 700,
            cached: 64,
            completion: 21_000,
            estimated: 300,
            cost: Money::of_parts((5 << 64) + 7),
        };
        let mut lines = UsageLines::default();
        lines.add((Some("acme".into()), Some("k1".into()), Some("big".into())), &used);
        lines.add((None, None, None), &Used { requests: 1, ..Used::default() });
        lines
    }

    #[test]
    fn the_bytes_of_the_file_are_those_on_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
        golden::check(folder, "usage_day", &SavedDay::of(&lines()));
    }

    #[test]
    fn what_was_kept_is_there_again() {
        assert_eq!(SavedDay::of(&lines()).into_lines(), lines());
    }
}

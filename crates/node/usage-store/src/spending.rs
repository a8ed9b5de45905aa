//! File of the nodes' reports about their tenants' spending.

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_usage::{Day, Money, NodeSpending, Spending};

/// Known spending of all nodes, so that it outlives nodes that are lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedSpending(Vec<SavedEntry>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedEntry {
    tenant: String,
    node: String,
    day: Day,
    /// Upper and lower half of the money of the day, and of the month.
    today: (u64, u64),
    month: (u64, u64),
}

impl Wire for SavedSpending {
    const KIND: u16 = 0x0802;
    const VERSION: u16 = 1;
    // As many entries as a book may have, with long names.
    const BYTES_MAX: usize = 16 << 20;
}

impl SavedSpending {
    pub(crate) fn of(told: &[NodeSpending]) -> Self {
        let entry = |told: &NodeSpending| SavedEntry {
            tenant: told.tenant.to_string(),
            node: told.node.to_string(),
            day: told.spending.day,
            today: halves(told.spending.today),
            month: halves(told.spending.month),
        };
        Self(told.iter().map(entry).collect())
    }

    pub(crate) fn into_rows(self) -> Vec<NodeSpending> {
        let told = |entry: SavedEntry| NodeSpending {
            tenant: entry.tenant.into(),
            node: entry.node.into(),
            spending: Spending {
                day: entry.day,
                today: whole(entry.today),
                month: whole(entry.month),
            },
        };
        self.0.into_iter().map(told).collect()
    }
}

/// Splits an amount: the format has no number of its size.
pub(crate) fn halves(money: Money) -> (u64, u64) {
    let parts = money.parts();
    ((parts >> 64) as u64, parts as u64)
}

/// Puts the halves of an amount together.
pub(crate) fn whole((high, low): (u64, u64)) -> Money {
    Money::of_parts((u128::from(high) << 64) | u128::from(low))
}

#[cfg(test)]
mod tests {
    use spillway_codec::golden;

    use super::*;

    #[test]
    fn the_bytes_of_the_file_are_those_on_file_and_read_back() {
        let told = [NodeSpending {
            tenant: "acme".into(),
            node: "a".into(),
            spending: Spending {
                day: "2026-11-27".parse().unwrap(),
                today: Money::of_millionths(7),
                month: Money::of_parts((3 << 64) + 9),
            },
        }];
        let saved = SavedSpending::of(&told);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
        golden::check(folder, "usage_spending", &saved);
        assert_eq!(saved.into_rows(), told);
    }
}

//! Spending of tenants, as each node reports its own.
//!
//! Each node counts for itself, and sends the others its sums of days and of months. Such a sum of
//! a node only grows, so the largest one received is the newest, whichever node sends it and
//! however often. So the spending of a node is known as long as any node has received it. A clock
//! that is wrong for a while adds to the sums of another day, and leaves those of today as they
//! are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spillway_types::{NodeName, TenantName};

use crate::day::Day;
use crate::money::Money;

/// Most pairs of a tenant and a node in a book; reports of other nodes beyond it are left out.
const ENTRIES_MAX: usize = 8_192;
/// Most days and months of one tenant at one node; those that changed last stay.
const KEPT: usize = 8;

/// Money that was spent on a day and in its month up to that day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// The day.
    pub day: Day,
    /// Money spent on that day.
    pub today: Money,
    /// Money spent in the month, that day included.
    pub month: Money,
}

/// Money that clients of a node spent, as the node reports it to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpending {
    /// Tenant that spent it.
    pub tenant: TenantName,
    /// Node whose clients spent it.
    pub node: NodeName,
    /// The money.
    pub spending: Spending,
}

/// Spending of the tenants with a budget at each node.
#[derive(Debug, Default)]
pub struct SpendingBook {
    entries: BTreeMap<(TenantName, NodeName), Entry>,
    /// Number of changes so far.
    changes: u64,
}

/// Spending of a tenant at a node.
#[derive(Debug, Default)]
struct Entry {
    /// Sums by day.
    days: BTreeMap<Day, Sum>,
    /// Sums by the first day of their month.
    months: BTreeMap<Day, Sum>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    money: Money,
    /// Number of the change that made it so.
    changed: u64,
}

impl Spending {
    /// Returns what of it counts on a day: today's money on the same day alone, the month's in the
    /// same month.
    #[must_use]
    pub fn on(self, day: Day) -> Self {
        let today = if day == self.day { self.today } else { Money::ZERO };
        let month = if day.month() == self.day.month() { self.month } else { Money::ZERO };
        Self { day, today, month }
    }

    /// Adds money that was spent on a day. Money of a day that is over, since a clock was set back,
    /// counts for its month if that is not over.
    pub fn add(&mut self, day: Day, cost: Money) {
        if day > self.day {
            *self = self.on(day);
        }
        if day == self.day {
            self.today += cost;
        }
        if day.month() == self.day.month() {
            self.month += cost;
        }
    }
}

impl Entry {
    fn on(&self, day: Day) -> Spending {
        let of = |sums: &BTreeMap<Day, Sum>, day| sums.get(&day).map_or(Money::ZERO, |it| it.money);
        Spending { day, today: of(&self.days, day), month: of(&self.months, day.month()) }
    }

    /// Sets the sums of a day and its month, and returns true if they were others.
    fn set(&mut self, spending: Spending, changed: u64) -> bool {
        if self.on(spending.day) == spending {
            return false;
        }
        let Spending { day, today, month } = spending;
        set(&mut self.days, day, Sum { money: today, changed });
        set(&mut self.months, day.month(), Sum { money: month, changed });
        true
    }
}

/// Sets a sum. Of more than [`KEPT`] the one goes that has been as it is for the longest time.
fn set(sums: &mut BTreeMap<Day, Sum>, day: Day, sum: Sum) {
    sums.insert(day, sum);
    if sums.len() > KEPT {
        let oldest = sums.iter().min_by_key(|(_, sum)| sum.changed).map(|(day, _)| *day);
        oldest.map(|day| sums.remove(&day));
    }
}

impl SpendingBook {
    /// Adds money that clients of a node spent.
    pub fn spend(&mut self, tenant: &TenantName, node: &NodeName, day: Day, cost: Money) {
        self.change(tenant, node, day, |known| Spending {
            today: known.today + cost,
            month: known.month + cost,
            ..known
        });
    }

    /// Takes in a report of a node's spending; older states change nothing.
    pub fn receive(&mut self, told: &NodeSpending) {
        let Spending { day, today, month } = told.spending;
        self.change(&told.tenant, &told.node, day, |known| Spending {
            today: known.today.max(today),
            month: known.month.max(month),
            ..known
        });
    }

    /// Forgets tenants that have no budget any more.
    pub fn retain(&mut self, has_budget: impl Fn(&TenantName) -> bool) {
        self.entries.retain(|(tenant, _), _| has_budget(tenant));
    }

    /// Returns what a tenant spent at all nodes together.
    #[must_use]
    pub fn of_tenant(&self, tenant: &TenantName, day: Day) -> Spending {
        let all = self.entries.range((tenant.clone(), NodeName::from(""))..);
        let own = all.take_while(|((of, _), _)| of == tenant);
        own.fold(Spending { day, ..Spending::default() }, |sum, (_, entry)| {
            let counted = entry.on(day);
            Spending { today: sum.today + counted.today, month: sum.month + counted.month, ..sum }
        })
    }

    /// Returns the number of changes so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns what has changed since the change of that number, and the number of the last change.
    #[must_use]
    pub fn changed_since(&self, change: u64) -> (Vec<NodeSpending>, u64) {
        let changed = self.entries.iter().flat_map(|((tenant, node), entry)| {
            let days = entry.days.iter().filter(move |(_, sum)| sum.changed > change);
            days.map(|(day, _)| NodeSpending {
                tenant: tenant.clone(),
                node: node.clone(),
                spending: entry.on(*day),
            })
        });
        (changed.collect(), self.changes)
    }

    fn change(
        &mut self,
        tenant: &TenantName,
        node: &NodeName,
        day: Day,
        change: impl FnOnce(Spending) -> Spending,
    ) {
        let key = (tenant.clone(), node.clone());
        if !self.entries.contains_key(&key) && self.entries.len() >= ENTRIES_MAX {
            return;
        }
        let entry = self.entries.entry(key).or_default();
        if entry.set(change(entry.on(day)), self.changes + 1) {
            self.changes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    fn money(millionths: u64) -> Money {
        Money::of_millionths(millionths)
    }

    fn sums(book: &SpendingBook, date: &str) -> (Money, Money) {
        let found = book.of_tenant(&"acme".into(), day(date));
        (found.today, found.month)
    }

    fn tell(from: &SpendingBook, to: &mut SpendingBook) {
        from.changed_since(0).0.iter().for_each(|told| to.receive(told));
    }

    #[test]
    fn days_and_months_begin_at_nothing() {
        let (mut book, acme, node) = (SpendingBook::default(), "acme".into(), "a".into());
        for (date, cost) in [("2026-11-29", 1), ("2026-11-30", 10), ("2026-11-30", 100)] {
            book.spend(&acme, &node, day(date), money(cost));
        }
        assert_eq!(sums(&book, "2026-11-30"), (money(110), money(111)));
        assert_eq!(sums(&book, "2026-12-01"), (money(0), money(0)));
        book.spend(&acme, &node, day("2026-12-01"), money(7));
        assert_eq!(sums(&book, "2026-12-01"), (money(7), money(7)));
        // A clock that was set back to a day that is over, and to a month that is over.
        book.spend(&acme, &node, day("2026-12-02"), money(1));
        book.spend(&acme, &node, day("2026-12-01"), money(2));
        book.spend(&acme, &node, day("2026-11-30"), money(50));
        assert_eq!(sums(&book, "2026-12-02"), (money(1), money(10)));
    }

    #[test]
    fn a_clock_that_is_wrong_for_a_while_changes_nothing_of_today() {
        for wrong in ["2026-11-28", "2027-01-08", "2027-11-29", "2026-11-30", "2025-11-29"] {
            let (mut own, mut heard) = (SpendingBook::default(), SpendingBook::default());
            let (acme, node) = ("acme".into(), "a".into());
            own.spend(&acme, &node, day("2026-11-29"), money(5));
            tell(&own, &mut heard);
            own.spend(&acme, &node, day(wrong), money(100));
            tell(&own, &mut heard);
            own.spend(&acme, &node, day("2026-11-29"), money(2));
            tell(&own, &mut heard);
            for book in [&own, &heard] {
                let month = if wrong.starts_with("2026-11") { 107 } else { 7 };
                assert_eq!(sums(book, "2026-11-29"), (money(7), money(month)), "{wrong}");
            }
        }
    }

    #[test]
    fn a_clock_that_wanders_takes_no_more_than_a_few_days_of_memory() {
        let mut book = SpendingBook::default();
        let mut on = day("2026-11-29");
        for _ in 0..1_000 {
            book.spend(&"acme".into(), &"a".into(), on, money(1));
            on = (0..40).fold(on, |day, _| day.next());
        }
        assert_eq!(book.changed_since(0).0.len(), KEPT);
    }

    #[test]
    fn nodes_that_tell_each_other_count_together_and_nothing_twice() {
        let (mut one, mut two, acme) =
            (SpendingBook::default(), SpendingBook::default(), "acme".into());
        one.spend(&acme, &"a".into(), day("2026-11-27"), money(1));
        two.spend(&acme, &"b".into(), day("2026-11-27"), money(10));
        for _ in 0..3 {
            tell(&one, &mut two);
            tell(&two, &mut one);
        }
        for book in [&one, &two] {
            assert_eq!(sums(book, "2026-11-27"), (money(11), money(11)));
        }
        let mut other = SpendingBook::default();
        other.spend(&"acme2".into(), &"a".into(), day("2026-11-27"), money(500));
        tell(&other, &mut one);
        assert_eq!(sums(&one, "2026-11-27"), (money(11), money(11)), "another tenant's");
    }

    #[test]
    fn what_a_lost_node_spent_is_known_to_who_heard_of_it_and_to_whom_that_one_tells() {
        let (mut lost, mut heard, mut new) =
            (SpendingBook::default(), SpendingBook::default(), SpendingBook::default());
        lost.spend(&"acme".into(), &"a".into(), day("2026-11-27"), money(5));
        tell(&lost, &mut heard);
        drop(lost);
        tell(&heard, &mut new);
        assert_eq!(sums(&new, "2026-11-27"), (money(5), money(5)));
    }

    #[test]
    fn only_what_changed_is_told() {
        let mut book = SpendingBook::default();
        book.spend(&"acme".into(), &"a".into(), day("2026-11-27"), money(5));
        let (told, change) = book.changed_since(0);
        assert_eq!(told.len(), 1);
        assert_eq!(book.changed_since(change), (Vec::new(), change));
        book.receive(&told[0]);
        assert_eq!(book.changed_since(change), (Vec::new(), change), "known already");
        book.spend(&"acme".into(), &"b".into(), day("2026-11-27"), money(5));
        assert_eq!(book.changed_since(change).0[0].node.as_str(), "b");
        book.retain(|_| false);
        assert_eq!(sums(&book, "2026-11-27"), (money(0), money(0)));
    }

    proptest! {
        /// Told late, twice or in any order: the newest state counts.
        #[test]
        fn the_order_in_which_states_are_told_does_not_matter(
            costs in prop::collection::vec((0_u32..70, 0_u64..9), 1..20),
            order in prop::collection::vec(0_usize..20, 0..60),
        ) {
            let mut costs = costs;
            costs.sort_unstable();
            let first = day("2026-11-01");
            let (mut own, mut heard) = (SpendingBook::default(), SpendingBook::default());
            let mut states = Vec::new();
            for (later, cost) in costs {
                let on = (0..later).fold(first, |day, _| day.next());
                own.spend(&"acme".into(), &"a".into(), on, money(cost));
                states.extend(own.changed_since(0).0);
            }
            for at in order {
                if let Some(state) = states.get(at) {
                    heard.receive(state);
                }
            }
            states.last().into_iter().for_each(|last| heard.receive(last));
            let on = states.last().map_or(first, |last| last.spending.day);
            prop_assert_eq!(
                heard.of_tenant(&"acme".into(), on),
                own.of_tenant(&"acme".into(), on)
            );
        }
    }
}

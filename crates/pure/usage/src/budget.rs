//! Budgets of tenants: how much money they may spend in a day and in a month of UTC.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arc_swap::ArcSwap;
use spillway_types::TenantName;

use crate::day::Day;
use crate::money::Money;
use crate::spending::Spending;

/// Most money that a tenant may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// In a day; `None` without such a budget.
    pub per_day: Option<Money>,
    /// In a month; `None` without such a budget.
    pub per_month: Option<Money>,
}

/// Time for which a budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetPeriod {
    /// A day of UTC.
    Day,
    /// A month of UTC.
    Month,
}

/// Budget that is spent: its tenant's requests are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSpent {
    /// Time for which the budget is.
    pub period: BudgetPeriod,
    /// The budget.
    pub budget: Money,
    /// Money that was spent, which may be more.
    pub spent: Money,
    /// Day on which a new budget begins.
    pub until: Day,
}

/// Tenants whose budgets are spent, as requests see them.
#[derive(Debug, Default)]
pub struct BudgetGate {
    spent: ArcSwap<BTreeMap<TenantName, BudgetSpent>>,
}

impl Budget {
    /// Returns true if nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.per_day.is_none() && self.per_month.is_none()
    }

    /// Returns the budget that is spent on a day; of both the one that lasts longer.
    #[must_use]
    pub fn spent(&self, spending: Spending, day: Day) -> Option<BudgetSpent> {
        let spending = spending.on(day);
        let month = (BudgetPeriod::Month, self.per_month, spending.month, day.next_month());
        let today = (BudgetPeriod::Day, self.per_day, spending.today, day.next());
        [month, today].into_iter().find_map(|(period, budget, spent, until)| {
            let budget = budget.filter(|budget| spent >= *budget)?;
            Some(BudgetSpent { period, budget, spent, until })
        })
    }
}

impl BudgetSpent {
    /// Returns the milliseconds until a new budget begins; `None` if it has begun.
    #[must_use]
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.until.starts_ms().checked_sub(now_ms).filter(|wait_ms| *wait_ms > 0)
    }
}

impl Display for BudgetSpent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let period = match self.period {
            BudgetPeriod::Day => "day",
            BudgetPeriod::Month => "month",
        };
        let Self { budget, spent, until, .. } = self;
        write!(
            f,
            "the budget of {budget} for the {period} is spent: {spent} used, again on {until}"
        )
    }
}

impl BudgetGate {
    /// Returns the budget that rejects a tenant's request, with the milliseconds until the next
    /// one. A budget whose time is over rejects no request, though it may still be listed. The
    /// clock is read only where a budget is spent.
    #[must_use]
    pub fn check(
        &self,
        tenant: Option<&TenantName>,
        now_ms: impl FnOnce() -> u64,
    ) -> Option<(BudgetSpent, u64)> {
        let spent = self.spent.load();
        let spent = spent.get(tenant?)?;
        Some((*spent, spent.wait_ms(now_ms())?))
    }

    /// Replaces the tenants whose budgets are spent, if others are.
    pub fn replace(&self, spent: BTreeMap<TenantName, BudgetSpent>) {
        if **self.spent.load() != spent {
            self.spent.store(Arc::new(spent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    fn money(millionths: u64) -> Money {
        Money::of_millionths(millionths)
    }

    fn spending(date: &str, today: u64, month: u64) -> Spending {
        Spending { day: day(date), today: money(today), month: money(month) }
    }

    const BOTH: Budget = Budget {
        per_day: Some(Money::of_millionths(10)),
        per_month: Some(Money::of_millionths(100)),
    };

    #[test]
    fn a_budget_is_spent_when_nothing_of_it_is_left() {
        let spent =
            |today, month| BOTH.spent(spending("2026-11-27", today, month), day("2026-11-27"));
        assert_eq!(spent(9, 99), None);
        let found = spent(10, 99).unwrap();
        assert_eq!((found.period, found.until), (BudgetPeriod::Day, day("2026-11-28")));
        let found = spent(10, 100).unwrap();
        assert_eq!((found.period, found.until), (BudgetPeriod::Month, day("2026-12-01")));
        assert_eq!(
            found.to_string(),
            "the budget of 0.0001 for the month is spent: 0.0001 used, again on 2026-12-01"
        );
        assert_eq!(Budget::default().spent(spending("2026-11-27", 9, 9), day("2026-11-27")), None);
    }

    #[test]
    fn a_budget_of_nothing_refuses_everything() {
        let none = Budget { per_day: Some(Money::ZERO), per_month: None };
        assert!(none.spent(Spending::default(), day("2026-11-27")).is_some());
    }

    #[test]
    fn a_budget_begins_anew_with_the_day_and_with_the_month() {
        let of_today = spending("2026-11-27", 10, 50);
        assert!(BOTH.spent(of_today, day("2026-11-27")).is_some());
        assert_eq!(BOTH.spent(of_today, day("2026-11-28")), None);
        let of_month = spending("2026-11-27", 0, 100);
        assert!(BOTH.spent(of_month, day("2026-11-30")).is_some());
        assert_eq!(BOTH.spent(of_month, day("2026-12-01")), None);
    }

    #[test]
    fn the_gate_lets_in_who_has_a_new_budget_before_anybody_has_looked() {
        let gate = BudgetGate::default();
        let spent = BOTH.spent(spending("2026-11-27", 10, 10), day("2026-11-27")).unwrap();
        gate.replace([("acme".into(), spent)].into());
        let (acme, other) = ("acme".into(), "other".into());
        let midnight = day("2026-11-28").starts_ms();
        let check = |tenant, now_ms| gate.check(tenant, || now_ms).map(|(_, wait_ms)| wait_ms);
        assert_eq!(check(Some(&acme), midnight - 1_500), Some(1_500));
        assert_eq!(check(Some(&acme), midnight), None);
        assert_eq!(check(Some(&other), midnight - 1), None);
        assert_eq!(check(None, midnight - 1), None);
        gate.replace(BTreeMap::new());
        assert_eq!(check(Some(&acme), midnight - 1), None);
    }
}

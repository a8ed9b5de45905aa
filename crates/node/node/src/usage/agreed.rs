//! Budgets and prices that the cluster agreed on, merged with those of this node's config.

use std::collections::BTreeMap;

use spillway_cluster_state::{Model, State, TokenPrice};
use spillway_types::TenantName;
use spillway_usage::{Budget, Money, Price, PriceList};

/// Budgets of tenants and prices of models from one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bills {
    pub(crate) budgets: BTreeMap<TenantName, Budget>,
    pub(crate) prices: PriceList,
}

impl Bills {
    /// Returns the budgets and prices of the cluster's records.
    pub(crate) fn of(state: &State) -> Self {
        let records = state.records();
        let amount = |millionths: Option<u64>| millionths.map(Money::of_millionths);
        let budgets = records.tenants.iter().map(|(name, tenant)| {
            let terms = tenant.terms;
            let (per_day, per_month) =
                (amount(terms.budget_per_day), amount(terms.budget_per_month));
            (name.clone(), Budget { per_day, per_month })
        });
        let mut prices = PriceList::default();
        for (name, model) in records.models.iter() {
            match model.price.map(price) {
                Some(price) if name.as_str() == Model::EVERY => prices.default = Some(price),
                Some(price) => drop(prices.models.insert(name.clone(), price)),
                None => {}
            }
        }
        Self { budgets: budgets.filter(|(_, budget)| !budget.is_none()).collect(), prices }
    }

    /// Merges the bills of the config with those of the cluster. Of two budgets the smaller one
    /// holds, as of two rules the stricter one. Of two prices the cluster's does, as of other records.
    pub(super) fn and(&self, agreed: &Self) -> Self {
        let mut both = self.clone();
        for (tenant, budget) in &agreed.budgets {
            let known = both.budgets.entry(tenant.clone()).or_default();
            known.per_day = smaller(known.per_day, budget.per_day);
            known.per_month = smaller(known.per_month, budget.per_month);
        }
        both.prices.default = agreed.prices.default.or(both.prices.default);
        let prices = agreed.prices.models.iter();
        both.prices.models.extend(prices.map(|(model, price)| (model.clone(), *price)));
        both
    }
}

fn smaller(one: Option<Money>, other: Option<Money>) -> Option<Money> {
    [one, other].into_iter().flatten().min()
}

fn price(price: TokenPrice) -> Price {
    let TokenPrice { prompt, cached, completion } = price;
    Price { prompt, cached: cached.unwrap_or(prompt), completion }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(per_day: Option<u64>, per_month: Option<u64>) -> Budget {
        let amount = |millionths: Option<u64>| millionths.map(Money::of_millionths);
        Budget { per_day: amount(per_day), per_month: amount(per_month) }
    }

    fn priced(prompt: u64) -> Price {
        Price { prompt, ..Price::default() }
    }

    #[test]
    fn the_smaller_budget_holds_and_the_price_of_the_cluster() {
        let config = Bills {
            budgets: [("a".into(), budget(Some(5), None)), ("b".into(), budget(None, Some(9)))]
                .into(),
            prices: PriceList {
                default: Some(priced(1)),
                models: [("m".into(), priced(2)), ("n".into(), priced(3))].into(),
            },
        };
        let agreed = Bills {
            budgets: [("a".into(), budget(Some(7), Some(8))), ("c".into(), budget(Some(1), None))]
                .into(),
            prices: PriceList { default: None, models: [("m".into(), priced(4))].into() },
        };
        let both = config.and(&agreed);
        assert_eq!(both.budgets[&TenantName::from("a")], budget(Some(5), Some(8)));
        assert_eq!(both.budgets[&TenantName::from("b")], budget(None, Some(9)));
        assert_eq!(both.budgets[&TenantName::from("c")], budget(Some(1), None));
        let price = |model: &str| both.prices.models[model].prompt;
        assert_eq!((price("m"), price("n")), (4, 3));
        assert_eq!(both.prices.default, Some(priced(1)));
    }
}

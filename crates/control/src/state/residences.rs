//! Where requests may be served, beside the records that say it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spillway_types::{RouteName, TenantName};

use crate::records::Stored;
use crate::state::{Table, Valued};
use crate::{Records, ResidencyRule};

/// What routes and tenants say of where requests may be served: as wire version 4 writes it, behind
/// all that older ones have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Residences {
    routes: BTreeMap<RouteName, ResidencyRule>,
    tenants: BTreeMap<TenantName, ResidencyRule>,
}

impl Residences {
    /// Takes it out of the records that say anything.
    pub(crate) fn take_from(records: &mut Records) -> Self {
        let residences = Self { routes: rules(&records.routes), tenants: rules(&records.tenants) };
        for name in residences.routes.keys() {
            records.routes.amend(name, |route| route.residency = ResidencyRule::default());
        }
        for name in residences.tenants.keys() {
            records.tenants.amend(name, |tenant| tenant.residency = ResidencyRule::default());
        }
        residences
    }

    /// Gives it back to the records. A rule without its record shows in the digest.
    pub(crate) fn put_into(self, records: &mut Records) {
        for (name, rule) in self.routes {
            records.routes.amend(&name, |route| route.residency = rule);
        }
        for (name, rule) in self.tenants {
            records.tenants.amend(&name, |tenant| tenant.residency = rule);
        }
    }
}

fn rules<V: Stored + Valued>(table: &Table<V::Key, V>) -> BTreeMap<V::Key, ResidencyRule> {
    let rules = table.iter().map(|(key, value)| (key.clone(), value.residency().clone()));
    rules.filter(|(_, rule)| !rule.is_anywhere()).collect()
}

//! Limits and access: metrics.

use super::spec::catalog;

catalog! {
    "Limits and access";

    /// Share of a limit that this node may use now (docs/explanation/limits.md): `kind` is
    /// `requests_per_s`, `requests_per_min`, `tokens_per_min` or `concurrency`; the sum over all
    /// nodes is at most the limit. The first 256 limits by name.
    LIMIT_SHARE = Gauge "spillway_limit_share" [limit, kind];

    /// Part of a limit that this node uses: charged within the last second or minute, or in flight.
    LIMIT_USED = Gauge "spillway_limit_used" [limit, kind]
        shown by "sum by (limit, kind) (spillway_limit_used) / sum by (limit, kind) (spillway_limit_share)";

    /// Tokens used beyond the amount charged, which are charged as soon as the limit allows.
    LIMIT_DEBT = Gauge "spillway_limit_debt" [limit, kind];

    /// Share of a tenant's budget that is spent, as far as this node knows of all nodes; from 1 its
    /// requests are refused. `period`: `day`, `month`. The first 256 tenants by name.
    TENANT_BUDGET_USED = Gauge "spillway_tenant_budget_used" [tenant, period]
        shown by "max by (tenant, period) (spillway_tenant_budget_used)";

    /// Authentication results: `ok`, `missing`, `unknown`, `revoked` (also for a suspended tenant),
    /// `expired`, `unsure` (a key of the cluster, whose log this node can't follow), and for
    /// authenticated requests `model` and `region`, which the key does not allow. `tenant` is empty
    /// without a valid key, and `_other` beyond 1,000 tenants.
    ACCESS = Counter "spillway_access" [tenant, result];
}

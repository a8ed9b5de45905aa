//! Limits and access: metrics.

use super::spec::catalog;

catalog! {
    "Limits and access";

    /// What this node may use of a limit now (docs/explanation/limits.md): `kind` is
    /// `requests_per_s`, `requests_per_min`, `tokens_per_min` or `concurrency`; the sum over all
    /// nodes is the limit at most. The first 256 limits by name.
    LIMIT_SHARE = Gauge "spillway_limit_share" [limit, kind];

    /// Part of a limit that this node uses: charged within the last second or minute, or running.
    LIMIT_USED = Gauge "spillway_limit_used" [limit, kind]
        shown by "sum by (limit, kind) (spillway_limit_used) / sum by (limit, kind) (spillway_limit_share)";

    /// Tokens that were used beyond what was charged, charged as soon as there is room.
    LIMIT_DEBT = Gauge "spillway_limit_debt" [limit, kind];

    /// Share of a tenant's budget that is spent, by what this node knows of all nodes; from 1 on its
    /// requests are refused. `period`: `day`, `month`. The first 256 tenants by name.
    TENANT_BUDGET_USED = Gauge "spillway_tenant_budget_used" [tenant, period]
        shown by "max by (tenant, period) (spillway_tenant_budget_used)";

    /// Requests for entry: `ok`, `missing`, `unknown`, `revoked` (also a suspended tenant),
    /// `expired`, `unsure` (a key of the cluster, which this node can't follow), and of those let in
    /// `model` and `region`, which the key is not for. `tenant` is empty without a good key, and
    /// `_other` beyond 1,000 tenants.
    ACCESS = Counter "spillway_access" [tenant, result];
}

//! Columns of the tables of records.

use super::text::Column;

pub(super) const NODES: &[Column] = &[
    ("node", "/key"),
    ("region", "/info/region"),
    ("address", "/info/address"),
    ("votes", "/record/role"),
    ("may order", "/info/operators"),
    ("wire version", "/info/wire_newest"),
    ("id", "/info/id"),
];
pub(super) const REMOVED_NODES: &[Column] = &[
    ("node", "/key"),
    ("id", "/info/id"),
    ("region", "/info/region"),
    ("certificate", "/info/fingerprint"),
    ("removed at", "/version"),
];
pub(super) const REVOKED_CERTIFICATES: &[Column] =
    &[("serial", "/key"), ("reason", "/record/reason"), ("revoked at", "/version")];
pub(super) const REPLICAS: &[Column] = &[
    ("replica", "/key"),
    ("state", "/info/state"),
    ("health", "/info/health/belief"),
    ("weight", "/record/weight"),
    ("operator's", "/info/operator_weight"),
    ("pool", "/record/pool"),
    ("models", "/record/models"),
    ("url", "/record/url"),
];
pub(super) const MODELS: &[Column] = &[
    ("model", "/key"),
    ("alias of", "/record/alias_of"),
    ("fallbacks", "/record/fallbacks"),
    ("prompt/M", "/record/prompt_per_million"),
    ("cached/M", "/record/cached_per_million"),
    ("completion/M", "/record/completion_per_million"),
    ("version", "/version"),
];
pub(super) const ROUTES: &[Column] = &[
    ("route", "/key"),
    ("models", "/record/models"),
    ("path", "/record/path_prefix"),
    ("pool", "/record/pool"),
    ("policy", "/record/policy"),
    ("regions", "/record/regions"),
    ("countries", "/record/countries"),
    ("version", "/version"),
];
pub(super) const SPLITS: &[Column] = &[
    ("split", "/key"),
    ("arms", "/record/arms"),
    ("by", "/record/by"),
    ("cookie", "/record/sticky_cookie"),
    ("version", "/version"),
];
pub(super) const LIMITS: &[Column] = &[
    ("limit", "/key"),
    ("requests/s", "/record/requests_per_s"),
    ("requests/min", "/record/requests_per_min"),
    ("tokens/min", "/record/tokens_per_min"),
    ("at a time", "/record/concurrency"),
    ("from", "/from"),
    ("version", "/version"),
];
pub(super) const TENANTS: &[Column] = &[
    ("tenant", "/key"),
    ("title", "/record/title"),
    ("suspended", "/record/is_suspended"),
    ("isolated", "/record/isolate_prompts"),
    ("per day", "/record/budget_per_day"),
    ("per month", "/record/budget_per_month"),
    ("regions", "/record/regions"),
    ("countries", "/record/countries"),
    ("version", "/version"),
];
pub(super) const SETTINGS: &[Column] = &[
    ("setting", "/key"),
    ("value", "/record/value"),
    ("default", "/info/default"),
    ("values", "/info/values"),
];
pub(super) const KEYS: &[Column] = &[
    ("key", "/key"),
    ("role", "/record/role"),
    ("tenant", "/record/tenant"),
    ("models", "/record/models"),
    ("regions", "/record/regions"),
    ("priority", "/record/priority"),
    ("ends (UTC)", "/record/expires_ms"),
    ("revoked", "/info/is_revoked"),
    ("version", "/version"),
];
pub(super) const JOIN_TOKENS: &[Column] = &[
    ("token", "/key"),
    ("region", "/record/region"),
    ("uses left", "/record/uses_left"),
    ("may order", "/record/operators"),
    ("ends (UTC)", "/record/expires_ms"),
];

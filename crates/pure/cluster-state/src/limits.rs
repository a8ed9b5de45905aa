//! Limits of the state. A violated limit is a refusal, never a panic.

use spillway_prefix::HotDelta;

/// Longest entry of the log in bytes, header included. Longer ones would delay heartbeats on thin
/// links.
pub const ENTRY_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of all rows of all tables. A node that joins must load them in seconds over a link of
/// 100 Mbit/s. The limit is lower in this crate's own tests, which fill the state.
pub const STATE_BYTES_MAX: u64 = if cfg!(test) { 4 } else { 32 } * 1024 * 1024;
/// Longest snapshot in bytes: twice the state, since renewals and removals are never refused for
/// lack of room.
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most nodes of a cluster, all of them in one Raft group.
pub(crate) const NODES_MAX: usize = 512;
/// Most regions: more than any cloud has.
pub(crate) const REGIONS_MAX: usize = 64;
/// Most replicas of all regions together.
pub(crate) const REPLICAS_MAX: usize = 16_384;
/// Most models, aliases included.
pub(crate) const MODELS_MAX: usize = 4_096;
/// Most routes. The data path matches them one after the other.
pub(crate) const ROUTES_MAX: usize = 256;
/// Most splits.
pub(crate) const SPLITS_MAX: usize = 1_024;
/// Most limits: enough for every key and tenant that may need one.
pub(crate) const LIMITS_MAX: usize = 32_768;
/// Most tenants.
pub(crate) const TENANTS_MAX: usize = 8_192;
/// Most API keys, revoked ones included.
pub(crate) const KEYS_MAX: usize = 32_768;
/// Most join tokens: a few for each region at a time.
pub(crate) const JOIN_TOKENS_MAX: usize = 256;
/// Most remembered disks of removed nodes, which can't join again.
pub(crate) const RETIRED_DISKS_MAX: usize = 1_024;
/// Most remembered names of removed nodes, which need a newer token to join: twice [`NODES_MAX`].
pub(crate) const REMOVED_NODES_MAX: usize = 1_024;
/// Most revoked certificates: several for each node.
pub(crate) const REVOKED_CERTIFICATES_MAX: usize = 4_096;
/// Longest serial number of a certificate in bytes, by RFC 5280.
pub(crate) const SERIAL_BYTES_MAX: usize = 20;

/// Most bytes of all replicas together, which [`STATE_BYTES_MAX`] does not include.
pub(crate) const REPLICAS_BYTES_MAX: u64 = STATE_BYTES_MAX / 2;
/// Most bytes of replicas that nodes register. The rest of [`REPLICAS_BYTES_MAX`] is for operators.
pub(crate) const NODES_REPLICAS_BYTES_MAX: u64 = STATE_BYTES_MAX * 3 / 8;
/// Bytes of replicas that the nodes of one region may register even if there are many regions.
pub(crate) const REGION_REPLICAS_BYTES_MIN: u64 = STATE_BYTES_MAX / 16;

/// Most remembered outcomes of requests without an `Idempotency-Key`. At 50 requests a second, a
/// retry has more than a minute.
pub const REQUESTS_MAX: usize = 4_096;
/// Most remembered outcomes of requests with an `Idempotency-Key`. At more than four requests a
/// second for a whole hour, the oldest are forgotten early.
pub const REQUESTS_KEYED_MAX: usize = 16_384;
/// Milliseconds for which outcomes are remembered, by the cluster's clock: longer than any client
/// retries.
pub const REQUEST_AGE_MS: u64 = 60 * 60 * 1000;
/// Most audit records of operators: months of usual work.
pub const OPERATOR_AUDIT_MAX: usize = 4_096;
/// Most audit records of nodes. They have a ring of their own, so that they can't push out
/// operators' records.
pub const SYSTEM_AUDIT_MAX: usize = 1_024;

/// Most elements of one batch (lease renewals, observations), which take about a fifth of an entry.
pub const BATCH_MAX: usize = 256;
/// Most hot blocks that enter, and most that leave, in one entry: as many as fit into it.
pub const HOT_BATCH_MAX: usize = HotDelta::RECORDS_MAX;
/// Most replicas that one entry takes out; the next entry takes out more.
pub(crate) const EXPIRED_MAX: usize = 1_024;
/// Most nodes that form a cluster together.
pub(crate) const SEEDS_MAX: usize = 64;

/// Longest name of a node, region, replica or tenant, bytes: certificates and labels contain it.
pub(crate) const NAME_BYTES_MAX: usize = spillway_types::RECORD_NAME_BYTES_MAX;
/// Longest name of a model in bytes: registries nest them.
pub(crate) const MODEL_NAME_BYTES_MAX: usize = 256;
/// Longest address or URL in bytes.
pub(crate) const URL_BYTES_MAX: usize = 512;
/// Longest free text of a few words in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 128;
/// Longest settings of a route in bytes: each of a route's settings at its longest, several times.
pub(crate) const SETTINGS_BYTES_MAX: usize = 8 * 1024;
/// Most models of one replica, one key or one route.
pub(crate) const MODELS_EACH_MAX: usize = 256;
/// Most countries of one route or tenant: more than there are.
pub(crate) const COUNTRIES_EACH_MAX: usize = 256;
/// Most fallbacks of one model: each costs a waiting client an attempt.
pub(crate) const FALLBACKS_MAX: usize = 8;
/// Most arms of one split.
pub(crate) const ARMS_MAX: usize = 16;

/// Shortest lease of a replica in milliseconds. A lease is three renewals long, and an entry moves
/// a region's clock by 5 s at most: with shorter leases one jump of a clock could end leases that
/// are kept.
pub const LEASE_MS_MIN: u64 = 15_000;
/// Longest lease of a replica in milliseconds: a replica that is gone should not stay listed for
/// longer.
pub(crate) const LEASE_MS_MAX: u64 = 3_600_000;
/// Most milliseconds by which one entry moves its region's clock: a third of the shortest lease.
pub(crate) const CLOCK_STEP_MS_MAX: u64 = LEASE_MS_MIN / 3;
/// Most members that must confirm a time before the cluster's clock moves to it.
pub(crate) const CLOCK_WITNESSES_MAX: usize = 3;
/// Most milliseconds by which an entry may count as later than the confirmed time; a later stamp is
/// cut to that. Members confirm the time about three times as often.
pub(crate) const CLOCK_LEAD_MS_MAX: u64 = 120_000;
/// Most milliseconds by which one entry moves the clock of a cluster with a single node, which may
/// have been off for weeks.
pub(crate) const CLOCK_ALONE_STEP_MS_MAX: u64 = 24 * 3_600_000;
/// Milliseconds between a node's clock and the cluster's below which the node need not confirm the
/// time.
pub(crate) const CLOCK_DRIFT_MS: u64 = 20_000;
/// Longest life of a join token in milliseconds.
pub(crate) const TOKEN_MS_MAX: u64 = 30 * 24 * 3_600_000;
/// Most milliseconds between the clocks of a region's nodes. A stamp that is older than the last by
/// more shows that a clock was set back: the region's clock goes on from it.
pub(crate) const CLOCK_SKEW_MS_MAX: u64 = 60_000;

/// Highest weight of a replica, as in the config file.
pub(crate) const REPLICA_WEIGHT_MAX: u32 = 1_000;
/// Highest weight of a region in thousandths: ten times the usual share.
pub(crate) const REGION_WEIGHT_PERMILLE_MAX: u16 = 10_000;
/// The whole, in thousandths.
pub(crate) const PERMILLE: u16 = 1_000;

/// Most voters of the Raft group: each one more is another acknowledgement to wait for.
pub const VOTERS_MAX: usize = 5;
/// Fewest voters to aim for. With fewer regions than this, nodes of one region fill the group up: a
/// single voter that fails would stop all writes.
pub(crate) const VOTERS_MIN: usize = 3;

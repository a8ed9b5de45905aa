//! How much of everything there may be. A violated limit is a refusal, never a panic.

use spillway_prefix::HotDelta;

/// One entry of the log, header included. Larger ones would hold up heartbeats on thin links.
pub const ENTRY_BYTES_MAX: usize = 64 * 1024;
/// All rows of all tables. A node that joins has to load it over a link of 100 Mbit/s in seconds.
/// Less in this crate's own tests, which fill it.
pub const STATE_BYTES_MAX: u64 = if cfg!(test) { 4 } else { 32 } * 1024 * 1024;
/// A snapshot: twice the state, since what renews or removes is never refused for lack of room.
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Members of a Raft group of this width; several times what regions have.
pub(crate) const NODES_MAX: usize = 512;
/// More than clouds have.
pub(crate) const REGIONS_MAX: usize = 64;
/// Model servers of all regions.
pub(crate) const REPLICAS_MAX: usize = 16_384;
/// Models, aliases included.
pub(crate) const MODELS_MAX: usize = 4_096;
/// Routes are matched one after the other by the data path.
pub(crate) const ROUTES_MAX: usize = 256;
/// Splits.
pub(crate) const SPLITS_MAX: usize = 1_024;
/// A limit for every key and tenant that may need one.
pub(crate) const LIMITS_MAX: usize = 32_768;
/// Tenants.
pub(crate) const TENANTS_MAX: usize = 8_192;
/// API keys, revoked ones included.
pub(crate) const KEYS_MAX: usize = 32_768;
/// Join tokens: a few for each region at a time.
pub(crate) const JOIN_TOKENS_MAX: usize = 256;
/// Disks of removed nodes that are remembered, to keep them out.
pub(crate) const RETIRED_DISKS_MAX: usize = 1_024;
/// Names of removed nodes that are remembered, to keep them out: twice as many as may be members.
pub(crate) const REMOVED_NODES_MAX: usize = 1_024;
/// Revoked certificates: several for each node there may be.
pub(crate) const REVOKED_CERTIFICATES_MAX: usize = 4_096;
/// Bytes of a certificate's serial number, by RFC 5280.
pub(crate) const SERIAL_BYTES_MAX: usize = 20;

/// Most bytes of replicas that operators and nodes register together, beside [`STATE_BYTES_MAX`].
pub(crate) const REPLICAS_BYTES_MAX: u64 = STATE_BYTES_MAX / 2;
/// Most bytes of replicas that nodes register. The rest of [`REPLICAS_BYTES_MAX`] is for operators.
pub(crate) const NODES_REPLICAS_BYTES_MAX: u64 = STATE_BYTES_MAX * 3 / 8;
/// Bytes of replicas that one region's nodes may register however many regions there are.
pub(crate) const REGION_REPLICAS_BYTES_MIN: u64 = STATE_BYTES_MAX / 16;

/// Requests without a name of their client's whose outcome is remembered: at 50 a second, a retry has
/// more than a minute.
pub const REQUESTS_MAX: usize = 4_096;
/// Requests with an operator's `Idempotency-Key` whose outcome is remembered. More than four a
/// second for a whole hour forget the oldest early.
pub const REQUESTS_KEYED_MAX: usize = 16_384;
/// How long they are remembered, by the stamps of entries: longer than any client retries.
pub const REQUEST_AGE_MS: u64 = 60 * 60 * 1000;
/// What operators did that is kept: months of usual work.
pub const OPERATOR_AUDIT_MAX: usize = 4_096;
/// What nodes did by themselves; in a ring of its own, so that it can't push out the operators'.
pub const SYSTEM_AUDIT_MAX: usize = 1_024;

/// Elements of a batch (renewals, observations): about a fifth of an entry.
pub const BATCH_MAX: usize = 256;
/// Blocks that one entry may say something about, of each kind: as many as fit into it.
pub const HOT_BATCH_MAX: usize = HotDelta::RECORDS_MAX;
/// Replicas that one entry may expire; the next one goes on.
pub(crate) const EXPIRED_MAX: usize = 1_024;
/// Nodes that form a cluster together.
pub(crate) const SEEDS_MAX: usize = 64;

/// Names of nodes, regions, replicas, tenants and the like: they stand in certificates and labels.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// Names of models: registries nest them.
pub(crate) const MODEL_NAME_BYTES_MAX: usize = 256;
/// Addresses and URLs.
pub(crate) const URL_BYTES_MAX: usize = 512;
/// Free text of a few words.
pub(crate) const TEXT_BYTES_MAX: usize = 128;
/// Models of one replica, one key or one route.
pub(crate) const MODELS_EACH_MAX: usize = 256;
/// Countries that one route or tenant names: there are not as many.
pub(crate) const COUNTRIES_EACH_MAX: usize = 256;
/// Models that may stand in for one: each costs a waiting client an attempt.
pub(crate) const FALLBACKS_MAX: usize = 8;
/// Arms of one split.
pub(crate) const ARMS_MAX: usize = 16;

/// A lease is three renewals long, and an entry moves a region's clock by 5 s at most: below this,
/// one jump of a clock could end leases that are kept.
pub const LEASE_MS_MIN: u64 = 15_000;
/// A replica that is gone should not stay in the list for longer.
pub(crate) const LEASE_MS_MAX: u64 = 3_600_000;
/// How far one entry moves its region's clock at most; a third of the shortest lease.
pub(crate) const CLOCK_STEP_MS_MAX: u64 = LEASE_MS_MIN / 3;
/// Members that have to agree on a time before the cluster's clock moves to it, at most.
pub(crate) const CLOCK_WITNESSES_MAX: usize = 3;
/// How far one entry's stamp may be ahead of what other members confirmed, and still counts. Members
/// confirm the time three times as often.
pub(crate) const CLOCK_LEAD_MS_MAX: u64 = 120_000;
/// How far the only node of a cluster moves its clock by one entry: it may have been off for weeks.
pub(crate) const CLOCK_ALONE_STEP_MS_MAX: u64 = 24 * 3_600_000;
/// A node whose clock differs from the cluster's by less says nothing about it.
pub(crate) const CLOCK_DRIFT_MS: u64 = 20_000;
/// Longest life of a join token.
pub(crate) const TOKEN_MS_MAX: u64 = 30 * 24 * 3_600_000;
/// Clocks of one region that differ by more were set back: the region's clock follows them.
pub(crate) const CLOCK_SKEW_MS_MAX: u64 = 60_000;

/// Weight of a replica; as in the config file.
pub(crate) const REPLICA_WEIGHT_MAX: u32 = 1_000;
/// Weight of a region in thousandths: ten times the usual share at most.
pub(crate) const REGION_WEIGHT_PERMILLE_MAX: u16 = 10_000;
/// The whole, in thousandths.
pub(crate) const PERMILLE: u16 = 1_000;

/// Voters of the Raft group: each more is another acknowledgement to wait for.
pub const VOTERS_MAX: usize = 5;
/// With fewer regions than this, nodes of one region fill the group up: one voter alone would stop
/// everything when it stops.
pub(crate) const VOTERS_MIN: usize = 3;

//! The names of all metrics, as they stand on the admin listener's `/metrics`.
//!
//! Counters get the suffix `_total` from the text format. docs/metrics.md says what each means.

/// Requests by route, model, status code and how they ended.
pub const REQUESTS: &str = "spillway_requests";
/// Seconds from the request's head to the reply's first body byte.
pub const FIRST_BYTE: &str = "spillway_time_to_first_token_seconds";
/// Seconds between two events of a stream.
pub const TOKEN_GAP: &str = "spillway_inter_token_seconds";
/// Seconds from the request's head to the reply's end.
pub const DURATION: &str = "spillway_request_duration_seconds";
/// Seconds that the gateway itself spent before asking a replica.
pub const OVERHEAD: &str = "spillway_gateway_overhead_seconds";
/// Tokens by route, model and kind: prompt, completion, cached.
pub const TOKENS: &str = "spillway_tokens";
/// Tokens by tenant and kind, for this node's own clients.
pub const TENANT_TOKENS: &str = "spillway_tenant_tokens";
/// Requests that a replica was asked for last, by why its policy chose it and by status.
pub const REPLICA_REQUESTS: &str = "spillway_replica_requests";
/// Retries by what made them safe: unsent, reset.
pub const RETRIES: &str = "spillway_retries";
/// Retries that the budget refused.
pub const RETRIES_REFUSED: &str = "spillway_retries_refused";
/// Streams whose replica broke off, on routes that continue them, by what came of it and why.
pub const CONTINUATIONS: &str = "spillway_stream_continuations";
/// Requests whose client left, by phase: before_reply, in_reply.
pub const CANCELS: &str = "spillway_client_cancels";
/// Requests by split, arm and class of status: 2xx, 4xx, ...
pub const SPLIT_REQUESTS: &str = "spillway_split_requests";
/// Requests that another model served, by the model asked for and the one that served.
pub const FALLBACKS: &str = "spillway_fallbacks";
/// Requests that a replica is serving for this node now.
pub const IN_FLIGHT: &str = "spillway_replica_in_flight";
/// Requests that the region's nodes together give a replica at a time, where that is found out.
pub const REPLICA_CONCURRENCY_LIMIT: &str = "spillway_replica_concurrency_limit";
/// Connections this node holds to a replica now, idle ones included.
pub const REPLICA_CONNECTIONS: &str = "spillway_replica_connections";
/// 1 for the standing that a replica has now: open, standby, ejected, starting, down, busy, draining.
pub const REPLICA_ADMISSION: &str = "spillway_replica_admission";
/// Models of a replica whose breaker is open or half open.
pub const REPLICA_BREAKERS: &str = "spillway_replica_breakers_open";
/// Share of a replica's weight that counts, below 1 while it warms up.
pub const REPLICA_RAMP: &str = "spillway_replica_ramp";
/// Seconds from asking a replica to its first byte: an average that follows peaks.
pub const REPLICA_LATENCY: &str = "spillway_replica_latency_seconds";
/// 99th percentile of the same seconds.
pub const REPLICA_P99: &str = "spillway_replica_p99_seconds";
/// What a replica says of its load, by signal.
pub const REPLICA_LOAD: &str = "spillway_replica_load";
/// How far that is trusted: 1 fresh, falling with age.
pub const REPLICA_TRUST: &str = "spillway_replica_load_trust";
/// Changes of a replica's standing, by what it became and why.
pub const REPLICA_TRANSITIONS: &str = "spillway_replica_transitions";
/// Requests that a replica failed, by how.
pub const REPLICA_FAULTS: &str = "spillway_replica_faults";
/// Checks of a replica, by kind and result.
pub const REPLICA_CHECKS: &str = "spillway_replica_checks";
/// Requests that wait in this node for a place at a replica, by model.
pub const WAITING: &str = "spillway_waiting";
/// Requests that other nodes forwarded and that are served here now.
pub const GUESTS: &str = "spillway_guests";
/// Requests that other nodes forwarded, by class of status.
pub const GUEST_REQUESTS: &str = "spillway_guest_requests";
/// Requests that were not served because of where they may be, by the place that found it.
pub const RESIDENCY_REFUSALS: &str = "spillway_residency_refusals";
/// Replies of `/v1/responses` whose ids were not kept, by reason: id_too_long, id_taken.
pub const RESPONSES_NOT_KEPT: &str = "spillway_responses_not_kept";
/// Requests that were served elsewhere than the ones before them that they belong to, by what they
/// belong to (session, conversation) and where they went (replica, region).
pub const HOME_CHANGES: &str = "spillway_home_changes";
/// 1 while a region is left out because too much of what was sent there failed.
pub const REGION_BREAKER_OPEN: &str = "spillway_region_breaker_open";
/// 1 if requests could be sent to a region, else 0.
pub const REGION_REACHABLE: &str = "spillway_region_reachable";
/// Seconds there and back.
pub const REGION_RTT: &str = "spillway_region_rtt_seconds";
/// Seconds since a region's report was true.
pub const REGION_AGE: &str = "spillway_region_report_age_seconds";
/// Share of its requests that a region gets, below 1 for a while after it came back.
pub const REGION_RAMP: &str = "spillway_region_ramp";
/// Requests of this node in another region now.
pub const SPILL_IN_FLIGHT: &str = "spillway_spill_in_flight";
/// Requests sent to another region, by result: served, refused, broken.
pub const SPILL_REQUESTS: &str = "spillway_spill_requests";
/// 1 if a connection to another node stands, by kind: control, data.
pub const LINK_CONNECTED: &str = "spillway_link_connected";
/// Seconds there and back on a connection.
pub const LINK_RTT: &str = "spillway_link_rtt_seconds";
/// Attempts to connect to another node that failed.
pub const LINK_DIALS_FAILED: &str = "spillway_link_dials_failed";
/// Peers that were refused, by reason.
pub const LINK_REFUSALS: &str = "spillway_link_refusals";
/// Nodes that asked to be members, or whether they are, and were heard.
pub const LINK_STRANGERS: &str = "spillway_link_strangers";
/// Datagrams of gossip, by result: sent, taken, or why not.
pub const GOSSIP_DATAGRAMS: &str = "spillway_gossip_datagrams";
/// Bytes of gossip sent.
pub const GOSSIP_BYTES: &str = "spillway_gossip_sent_bytes";
/// When other nodes will refuse this node's certificate, in seconds since 1970.
pub const CERTIFICATE_EXPIRES: &str = "spillway_certificate_expires_seconds";
/// Certificate authorities that this node believes: two while one replaces another.
pub const CERTIFICATE_AUTHORITIES: &str = "spillway_certificate_authorities";
/// 1 for what this node is in the cluster that agrees on things.
pub const CONTROL_ROLE: &str = "spillway_control_role";
/// The latest term that this node knows.
pub const CONTROL_TERM: &str = "spillway_control_term";
/// The last agreed entry that was carried out here.
pub const CONTROL_APPLIED: &str = "spillway_control_applied_index";
/// The last entry in this node's log.
pub const CONTROL_LAST: &str = "spillway_control_last_index";
/// How old what this node knows can be.
pub const CONTROL_AGE: &str = "spillway_control_age_seconds";
/// Nodes that vote.
pub const CONTROL_VOTERS: &str = "spillway_control_voters";
/// Bytes of entries in this node's log.
pub const CONTROL_LOG_BYTES: &str = "spillway_control_log_bytes";
/// Models, splits, routes and registered replicas of the cluster, by their use here: used, hides
/// (in place of the config's), in_part, unusable.
pub const CONTROL_ITEMS: &str = "spillway_control_items";
/// Requests that were turned away for load or for a limit, by reason and class.
pub const SHEDS: &str = "spillway_sheds";
/// Second attempts beside the first, by result: won, lost, failed.
pub const HEDGES: &str = "spillway_hedges";
/// 1 for each route and model that no open replica serves, by the standing of those that do.
pub const LAST_RESORT: &str = "spillway_last_resort";
/// Milliseconds that predictions of the first token were off by, as quantiles in seconds.
pub const PREDICTION_ERROR: &str = "spillway_prediction_error_seconds";
/// The same as a part of the time that was seen.
pub const PREDICTION_ERROR_RATIO: &str = "spillway_prediction_error_ratio";
/// Prompt tokens in replicas' caches, by kind: expected, reported.
pub const CACHE_ESTIMATE: &str = "spillway_cache_estimate_tokens";
/// Different blocks of prompts that are known at any replica.
pub const PREFIX_BLOCKS: &str = "spillway_prefix_index_blocks";
/// Blocks at replicas.
pub const PREFIX_PAIRS: &str = "spillway_prefix_index_pairs";
/// Bytes of the prefix index.
pub const PREFIX_BYTES: &str = "spillway_prefix_index_bytes";
/// Blocks at replicas that were forgotten, by why.
pub const PREFIX_FORGOTTEN: &str = "spillway_prefix_forgotten";
/// Replicas whose blocks were all forgotten at once.
pub const PREFIX_FLUSHES: &str = "spillway_prefix_flushes";
/// Prompts looked up, by result: matched, none.
pub const PREFIX_LOOKUPS: &str = "spillway_prefix_lookups";
/// Lessons about caches and speeds that found their queue full.
pub const LEARNINGS_DROPPED: &str = "spillway_learnings_dropped";
/// Replicas and models whose speed is learned.
pub const LATENCY_MODELS: &str = "spillway_latency_models";
/// Messages about caches between the nodes of a region, by result.
pub const PREFIX_SHARED: &str = "spillway_prefix_shared";
/// Bytes of them that were sent.
pub const PREFIX_SHARED_BYTES: &str = "spillway_prefix_shared_sent_bytes";
/// Hot blocks by region.
pub const HOT_BLOCKS: &str = "spillway_hot_blocks";
/// Bytes of all hot blocks.
pub const HOT_BYTES: &str = "spillway_hot_size_bytes";
/// Agreed changes of hot blocks.
pub const HOT_ENTRIES: &str = "spillway_hot_entries";
/// Bytes of them.
pub const HOT_ENTRY_BYTES: &str = "spillway_hot_entry_bytes";
/// Changes of hot blocks that this node proposed, by result.
pub const HOT_PROPOSALS: &str = "spillway_hot_proposals";
/// Decisions between regions about hot prompts, by way: changed, same.
pub const HOT_DECISIONS: &str = "spillway_hot_decisions";
/// What this node may use of a limit now, by limit and kind.
pub const LIMIT_SHARE: &str = "spillway_limit_share";
/// What this node uses of a limit, by limit and kind.
pub const LIMIT_USED: &str = "spillway_limit_used";
/// What was used of a limit beyond what was charged, by limit and kind.
pub const LIMIT_DEBT: &str = "spillway_limit_debt";
/// Facts about replicas that did not fit their queue.
pub const FACTS_DROPPED: &str = "spillway_facts_dropped";
/// Requests for entry, by tenant and how they ended.
pub const ACCESS: &str = "spillway_access";
/// Client connections open now.
pub const CLIENT_CONNECTIONS: &str = "spillway_client_connections";
/// Client connections that the gateway closed, by reason.
pub const CONNECTIONS_CLOSED: &str = "spillway_client_connections_closed";
/// Bytes of request bodies held in memory now.
pub const BODY_BYTES: &str = "spillway_request_body_bytes";
/// Client streams of HTTP/2 that the gateway closed while their connection went on, by reason.
pub const STREAMS_CLOSED: &str = "spillway_client_streams_closed";
/// Bytes of replies held for clients that are behind.
pub const READ_AHEAD_BYTES: &str = "spillway_read_ahead_bytes";
/// Replies that were read ahead of their clients, and those that there was no more room for.
pub const READ_AHEAD_REPLIES: &str = "spillway_read_ahead_replies";
/// Memory of the process: used, and the ceiling from which on nothing new is taken in.
pub const MEMORY_BYTES: &str = "spillway_memory_bytes";
/// Outcomes that did not fit the queue and are missing from the other metrics.
pub const OUTCOMES_DROPPED: &str = "spillway_outcomes_dropped";
/// Config reloads by result: applied, refused.
pub const RELOADS: &str = "spillway_config_reloads";
/// Build and node facts as labels; the value is 1.
pub const BUILD: &str = "spillway_build";

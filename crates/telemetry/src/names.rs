//! Names of all metrics on the admin listener's `/metrics`.
//!
//! The text format adds the suffix `_total` to counters. docs/reference/metrics.md describes every metric.

/// Requests by route, model, status code and end.
pub const REQUESTS: &str = "spillway_requests";
/// Seconds from the request's head to the reply's first body byte.
pub const FIRST_BYTE: &str = "spillway_time_to_first_token_seconds";
/// Seconds between two events of a stream.
pub const TOKEN_GAP: &str = "spillway_inter_token_seconds";
/// Seconds from the request's head to the reply's end.
pub const DURATION: &str = "spillway_request_duration_seconds";
/// Seconds that the gateway itself spent before it asked a replica.
pub const OVERHEAD: &str = "spillway_gateway_overhead_seconds";
/// Tokens by route, model and kind: prompt, completion, cached.
pub const TOKENS: &str = "spillway_tokens";
/// Tokens by tenant and kind, for this node's own clients.
pub const TENANT_TOKENS: &str = "spillway_tenant_tokens";
/// Requests by the replica that was asked last, by the policy's reason and by status.
pub const REPLICA_REQUESTS: &str = "spillway_replica_requests";
/// Retries by what made them safe: unsent, reset.
pub const RETRIES: &str = "spillway_retries";
/// Retries that the budget refused.
pub const RETRIES_REFUSED: &str = "spillway_retries_refused";
/// Streams whose replica broke off, on routes that continue them, by result and reason.
pub const CONTINUATIONS: &str = "spillway_stream_continuations";
/// Requests whose client left, by phase: before_reply, in_reply.
pub const CANCELS: &str = "spillway_client_cancels";
/// Requests by split, arm and class of status: 2xx, 4xx, ...
pub const SPLIT_REQUESTS: &str = "spillway_split_requests";
/// Requests that another model served, by the model asked for and the one that served.
pub const FALLBACKS: &str = "spillway_fallbacks";
/// Requests that a replica is serving for this node now.
pub const IN_FLIGHT: &str = "spillway_replica_in_flight";
/// Requests that the region's nodes together give a replica at a time, where that limit is
/// measured.
pub const REPLICA_CONCURRENCY_LIMIT: &str = "spillway_replica_concurrency_limit";
/// Connections this node holds to a replica now, idle ones included.
pub const REPLICA_CONNECTIONS: &str = "spillway_replica_connections";
/// 1 for the standing of a replica: open, standby, ejected, starting, down, busy, draining.
pub const REPLICA_ADMISSION: &str = "spillway_replica_admission";
/// Models of a replica whose circuit breaker is open or half open.
pub const REPLICA_BREAKERS: &str = "spillway_replica_breakers_open";
/// Share of a replica's weight that counts, below 1 during slow start.
pub const REPLICA_RAMP: &str = "spillway_replica_ramp";
/// Seconds from asking a replica to its first byte: a moving average that follows peaks.
pub const REPLICA_LATENCY: &str = "spillway_replica_latency_seconds";
/// Seconds from asking a replica to its first byte, 99th percentile.
pub const REPLICA_P99: &str = "spillway_replica_p99_seconds";
/// Load that a replica reports, by signal.
pub const REPLICA_LOAD: &str = "spillway_replica_load";
/// Trust in a replica's report: 1 when fresh, falling with age.
pub const REPLICA_TRUST: &str = "spillway_replica_load_trust";
/// Changes of a replica's standing, by the new standing and reason.
pub const REPLICA_TRANSITIONS: &str = "spillway_replica_transitions";
/// Requests that failed through a replica's fault, by fault.
pub const REPLICA_FAULTS: &str = "spillway_replica_faults";
/// Checks of a replica, by kind and result.
pub const REPLICA_CHECKS: &str = "spillway_replica_checks";
/// Requests that wait in this node for a place at a replica, by model.
pub const WAITING: &str = "spillway_waiting";
/// Requests that other nodes forwarded and that are served here now.
pub const GUESTS: &str = "spillway_guests";
/// Requests that other nodes forwarded, by class of status.
pub const GUEST_REQUESTS: &str = "spillway_guest_requests";
/// Requests that were refused for residency, by the place that refused them.
pub const RESIDENCY_REFUSALS: &str = "spillway_residency_refusals";
/// Requests of clients by the country that a location database places them in, or `unknown`.
pub const CLIENT_COUNTRY_REQUESTS: &str = "spillway_client_country_requests";
/// Build time of a location database in use, in seconds since 1970.
pub const GEO_DATABASE_BUILT: &str = "spillway_geo_database_built_timestamp_seconds";
/// Readings of location databases that may have changed, by result: applied, refused.
pub const GEO_RELOADS: &str = "spillway_geo_reloads";
/// Replies of `/v1/responses` whose ids were not kept, by reason: id_too_long, id_taken.
pub const RESPONSES_NOT_KEPT: &str = "spillway_responses_not_kept";
/// Requests that were served elsewhere than the earlier requests of their session or conversation,
/// by kind (session, conversation) and destination (replica, region).
pub const HOME_CHANGES: &str = "spillway_home_changes";
/// DNS queries by transport and record type.
pub const DNS_QUERIES: &str = "spillway_dns_queries";
/// DNS queries by result: answered, nodata, nxdomain, refused, limited_dropped, ...
pub const DNS_ANSWERS: &str = "spillway_dns_answers";
/// DNS answers with addresses, by the region of the addresses.
pub const DNS_REGION_ANSWERS: &str = "spillway_dns_region_answers";
/// 1 if DNS answers name a region, else 0.
pub const DNS_REGION_OFFERED: &str = "spillway_dns_region_offered";
/// TCP connections to the name server now.
pub const DNS_CONNECTIONS: &str = "spillway_dns_connections";
/// TCP connections to the name server that were closed at once, over the limit.
pub const DNS_CONNECTIONS_REFUSED: &str = "spillway_dns_connections_refused";
/// 1 while the circuit breaker of a region is open: too many requests to it failed.
pub const REGION_BREAKER_OPEN: &str = "spillway_region_breaker_open";
/// 1 if requests could be sent to a region, else 0.
pub const REGION_REACHABLE: &str = "spillway_region_reachable";
/// 1 if clients are to be sent to a region, as far as this node knows, else 0.
pub const REGION_TAKES_CLIENTS: &str = "spillway_region_takes_clients";
/// 1 if clients are to be sent to this node, else 0.
pub const TAKES_CLIENTS: &str = "spillway_takes_clients";
/// 1 for the present reason to send no clients to this node, 0 for all other reasons.
pub const STEERED_AWAY: &str = "spillway_clients_steered_away";
/// Round-trip time to a region in seconds.
pub const REGION_RTT: &str = "spillway_region_rtt_seconds";
/// Age of a region's report in seconds.
pub const REGION_AGE: &str = "spillway_region_report_age_seconds";
/// Share of its requests that a region gets, below 1 during slow start after it came back.
pub const REGION_RAMP: &str = "spillway_region_ramp";
/// Requests of this node in another region now.
pub const SPILL_IN_FLIGHT: &str = "spillway_spill_in_flight";
/// Requests sent to another region, by result: served, refused, broken.
pub const SPILL_REQUESTS: &str = "spillway_spill_requests";
/// 1 if a connection to another node is established, by kind: control, data.
pub const LINK_CONNECTED: &str = "spillway_link_connected";
/// Round-trip time on a connection to another node in seconds.
pub const LINK_RTT: &str = "spillway_link_rtt_seconds";
/// Attempts to connect to another node that failed.
pub const LINK_DIALS_FAILED: &str = "spillway_link_dials_failed";
/// Peers that were refused, by reason.
pub const LINK_REFUSALS: &str = "spillway_link_refusals";
/// Nodes that asked to be members, or for their standing, and got an answer.
pub const LINK_STRANGERS: &str = "spillway_link_strangers";
/// Datagrams of gossip, by result: sent, taken, or the reason of refusal.
pub const GOSSIP_DATAGRAMS: &str = "spillway_gossip_datagrams";
/// Bytes of gossip sent.
pub const GOSSIP_BYTES: &str = "spillway_gossip_sent_bytes";
/// Time when other nodes will refuse this node's certificate, in seconds since 1970.
pub const CERTIFICATE_EXPIRES: &str = "spillway_certificate_expires_seconds";
/// Certificate authorities that this node trusts: two while one replaces another.
pub const CERTIFICATE_AUTHORITIES: &str = "spillway_certificate_authorities";
/// Expiry of a certificate authority that this node trusts, in seconds since 1970, by fingerprint.
pub const AUTHORITY_EXPIRES: &str = "spillway_certificate_authority_expires_seconds";
/// Expiry of a listener's certificate, in seconds since 1970, by listener.
pub const LISTENER_EXPIRES: &str = "spillway_listener_certificate_expires_seconds";
/// 1 for this node's role in the control plane.
pub const CONTROL_ROLE: &str = "spillway_control_role";
/// The latest term that this node knows.
pub const CONTROL_TERM: &str = "spillway_control_term";
/// Index of the last entry carried out on this node.
pub const CONTROL_APPLIED: &str = "spillway_control_applied_index";
/// Index of the last entry in this node's log.
pub const CONTROL_LAST: &str = "spillway_control_last_index";
/// Greatest possible age of this node's state in seconds.
pub const CONTROL_AGE: &str = "spillway_control_age_seconds";
/// Number of voters.
pub const CONTROL_VOTERS: &str = "spillway_control_voters";
/// Bytes of entries in this node's log.
pub const CONTROL_LOG_BYTES: &str = "spillway_control_log_bytes";
/// Models, splits, routes and registered replicas of the cluster, by their use on this node: used,
/// hides (in place of the config's), in_part, unusable.
pub const CONTROL_ITEMS: &str = "spillway_control_items";
/// Requests that were refused for load or for a limit, by reason and priority class.
pub const SHEDS: &str = "spillway_sheds";
/// Hedges, the second attempts beside the first, by result: won, lost, failed.
pub const HEDGES: &str = "spillway_hedges";
/// 1 for each route and model without an open replica, by the standing of the replicas that serve.
pub const LAST_RESORT: &str = "spillway_last_resort";
/// Error of predicted times to the first token, as quantiles in seconds.
pub const PREDICTION_ERROR: &str = "spillway_prediction_error_seconds";
/// Error of predicted times to the first token, as quantiles of its ratio to the measured time.
pub const PREDICTION_ERROR_RATIO: &str = "spillway_prediction_error_ratio";
/// Prompt tokens in replicas' caches, by kind: expected, reported.
pub const CACHE_ESTIMATE: &str = "spillway_cache_estimate_tokens";
/// Different blocks of prompts known at any replica.
pub const PREFIX_BLOCKS: &str = "spillway_prefix_index_blocks";
/// Pairs of block and replica in the prefix index.
pub const PREFIX_PAIRS: &str = "spillway_prefix_index_pairs";
/// Bytes of the prefix index.
pub const PREFIX_BYTES: &str = "spillway_prefix_index_bytes";
/// Pairs of block and replica that were forgotten, by reason.
pub const PREFIX_FORGOTTEN: &str = "spillway_prefix_forgotten";
/// Replicas whose blocks were all forgotten at once.
pub const PREFIX_FLUSHES: &str = "spillway_prefix_flushes";
/// Prompts looked up, by result: matched, none.
pub const PREFIX_LOOKUPS: &str = "spillway_prefix_lookups";
/// Lessons about caches and speeds that did not fit into their queue.
pub const LEARNINGS_DROPPED: &str = "spillway_learnings_dropped";
/// Pairs of replica and model whose speed is learned.
pub const LATENCY_MODELS: &str = "spillway_latency_models";
/// KV events of engines that were read.
pub const KV_EVENTS: &str = "spillway_kv_events";
/// Times that KV events were or may have been missed.
pub const KV_EVENTS_MISSED: &str = "spillway_kv_events_missed";
/// Replicas whose KV events are read, by what is known by them.
pub const KV_EVENTS_REPLICAS: &str = "spillway_kv_events_replicas";
/// Blocks of engines that are known by KV events.
pub const KV_EVENTS_BLOCKS: &str = "spillway_kv_events_blocks";
/// Messages about caches between the nodes of a region, by result.
pub const PREFIX_SHARED: &str = "spillway_prefix_shared";
/// Bytes sent in messages about caches between the nodes of a region.
pub const PREFIX_SHARED_BYTES: &str = "spillway_prefix_shared_sent_bytes";
/// Hot blocks by region.
pub const HOT_BLOCKS: &str = "spillway_hot_blocks";
/// Bytes of all hot blocks.
pub const HOT_BYTES: &str = "spillway_hot_size_bytes";
/// Entries of the log that changed hot blocks.
pub const HOT_ENTRIES: &str = "spillway_hot_entries";
/// Bytes of the entries that changed hot blocks.
pub const HOT_ENTRY_BYTES: &str = "spillway_hot_entry_bytes";
/// Changes of hot blocks that this node proposed, by result.
pub const HOT_PROPOSALS: &str = "spillway_hot_proposals";
/// Decisions between regions that go by caches, by way: changed by what is cached elsewhere, same.
pub const HOT_DECISIONS: &str = "spillway_hot_decisions";
/// Part of a limit that this node may use now, by limit and kind.
pub const LIMIT_SHARE: &str = "spillway_limit_share";
/// Use of a limit on this node, by limit and kind.
pub const LIMIT_USED: &str = "spillway_limit_used";
/// Use of a limit that is not charged yet, by limit and kind.
pub const LIMIT_DEBT: &str = "spillway_limit_debt";
/// Facts about replicas that did not fit into their queue.
pub const FACTS_DROPPED: &str = "spillway_facts_dropped";
/// Requests for entry, by tenant and result.
pub const ACCESS: &str = "spillway_access";
/// Client connections open now.
pub const CLIENT_CONNECTIONS: &str = "spillway_client_connections";
/// Client connections that the gateway closed, by reason.
pub const CONNECTIONS_CLOSED: &str = "spillway_client_connections_closed";
/// Bytes of request bodies held in memory now.
pub const BODY_BYTES: &str = "spillway_request_body_bytes";
/// HTTP/2 client streams that the gateway closed while their connection went on, by reason.
pub const STREAMS_CLOSED: &str = "spillway_client_streams_closed";
/// Bytes of replies held for clients that read slowly.
pub const READ_AHEAD_BYTES: &str = "spillway_read_ahead_bytes";
/// Replies that were read ahead of their clients, by state: begun, full.
pub const READ_AHEAD_REPLIES: &str = "spillway_read_ahead_replies";
/// Memory of the process: used, and the ceiling near which new requests are refused.
pub const MEMORY_BYTES: &str = "spillway_memory_bytes";
/// Outcomes that did not fit into the queue and are missing from the other metrics.
pub const OUTCOMES_DROPPED: &str = "spillway_outcomes_dropped";
/// Config reloads by result: applied, refused.
pub const RELOADS: &str = "spillway_config_reloads";
/// Build and node facts as labels; the value is 1.
pub const BUILD: &str = "spillway_build";

//! Name server and places of clients: metrics.

use super::spec::catalog;

catalog! {
    "Name server and places of clients";

    /// Build time of the location database in use, in seconds since 1970: `place` (cities or
    /// countries). Alert on old ones.
    GEO_DATABASE_BUILT = Gauge "spillway_geo_database_built_timestamp_seconds" [database]
        shown by "(time() - min by (database) (spillway_geo_database_built_timestamp_seconds)) / 86400";

    /// Reloads of location databases after a change of their files or of the config: `applied`,
    /// `refused` (the old database stays in use).
    GEO_RELOADS = Counter "spillway_geo_reloads" [result]
        shown by r#"increase(spillway_geo_reloads_total{result="refused"}[1h]) > 0"#;

    /// DNS queries that were read, by `udp` or `tcp` and by type: `A`, `AAAA`, `HTTPS`, `SOA`,
    /// `NS`, `CAA`, `ANY`, `other`.
    DNS_QUERIES = Counter "spillway_dns_queries" [transport, type];

    /// DNS queries by result: `answered`, `nodata`, `nxdomain`, `refused`, `formerr`, `notimp`,
    /// `badvers`, `servfail` (no report of other regions yet), `truncated`; `limited_truncated` and
    /// `limited_dropped` (rate limit of a network); `dropped` (not a query).
    DNS_ANSWERS = Counter "spillway_dns_answers" [result];

    /// Answers with addresses of the region.
    DNS_REGION_ANSWERS = Counter "spillway_dns_region_answers" [region];

    /// 1 if DNS directs clients to the region ([steering.md](../guides/steering.md#dns)).
    DNS_REGION_OFFERED = Gauge "spillway_dns_region_offered" [region];

    /// TCP connections to the name server.
    DNS_CONNECTIONS = Gauge "spillway_dns_connections" [];

    /// Connections to the name server that were closed at once: 256 were open, or 32 of one
    /// network.
    DNS_CONNECTIONS_REFUSED = Counter "spillway_dns_connections_refused" [];
}

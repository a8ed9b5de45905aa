//! The admin API over real nodes and HTTP.

mod access_test;
mod client;
mod cluster_test;
mod live_test;
mod openapi_test;
mod schema;
mod secrets_test;
mod trie_test;
mod watch_test;
mod world;
mod write_test;

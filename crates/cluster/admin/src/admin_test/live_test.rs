//! Tests of the live view.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use spillway_usage::UsageQuery;

use super::client::{Client, Stream};
use super::schema::faults;
use super::trie_test::Teller;
use super::world::{World, listen};
use crate::{
    Admin, AdminConfig, ClusterUsage, Listing, Looking, NodeOverview, NodePhase, Overview,
    RegionOverview, RequestHistoryOverview, RouteOverview, Summing, openapi, parse_token_file,
};

const READER: &str = "reader-token-0123456789abcdef";

/// Overview that counts how often it is read, and can be asked to leave.
#[derive(Debug, Default)]
struct Counted {
    looks: AtomicU64,
    is_leaving: AtomicBool,
}

impl Overview for Counted {
    fn node(&self) -> Looking<'_> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let is_leaving = self.is_leaving.load(Ordering::Relaxed);
        let phase = if is_leaving { NodePhase::Leaving } else { NodePhase::Serving };
        Box::pin(std::future::ready(NodeOverview { phase, ..NodeOverview::default() }))
    }

    fn regions(&self) -> Vec<RegionOverview> {
        Vec::new()
    }

    fn history(&self) -> RequestHistoryOverview {
        RequestHistoryOverview::default()
    }

    fn routes(&self) -> Vec<RouteOverview> {
        Vec::new()
    }

    fn replicas(&self) -> Listing<'_> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn usage(&self, _: UsageQuery) -> Summing<'_> {
        Box::pin(std::future::ready(ClusterUsage::default()))
    }
}

async fn live(client: &Client) -> Stream {
    let stream = client.open(Method::GET, "/v1/live", Bytes::new()).await;
    assert_eq!(stream.response.status(), 200);
    assert_eq!(stream.response.headers()["content-type"], "text/event-stream");
    stream
}

fn check(schema: &str, data: &Value) {
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    let faults = faults(openapi(), &schema, data);
    assert!(faults.is_empty(), "{faults:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_told_who_it_is_and_then_how_the_node_is_again_and_again() {
    let tokens = parse_token_file(&format!("rea read {READER}")).unwrap();
    let world = World::one(AdminConfig { tokens, ..AdminConfig::default() }).await;
    let mut stream = live(&world.client(0).token(READER)).await;
    let begin = stream.event().await.unwrap();
    assert_eq!(begin.kind, "begin");
    check("LiveBegin", &begin.data);
    assert_eq!(begin.data, json!({ "caller": "rea", "role": "read", "needs_token": true }));
    let first = stream.event().await.unwrap();
    assert_eq!(first.kind, "snapshot");
    check("LiveSnapshot", &first.data);
    assert_eq!(first.data["node"]["node"]["name"], "a");
    assert_eq!(first.data["node"]["log"]["role"], "leader");
    assert_eq!(first.data["regions"][0]["region"], "eu");
    assert_eq!(first.data["replicas"][0]["name"], "gpu-a");
    let second = stream.event_of("snapshot").await;
    assert!(second.id > first.id, "a later one");
}

#[tokio::test]
async fn pages_share_what_the_node_finds_out() {
    let counted = Arc::new(Counted::default());
    let admin = Admin::new(None, AdminConfig::default()).overviewing(Arc::clone(&counted) as _);
    let (address, _listening) = listen(admin).await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(live(&Client::new(address)).await);
    }
    for stream in &mut streams {
        assert_eq!(stream.event().await.unwrap().data["role"], "admin");
    }
    let mut events = 0;
    for _ in 0..2 {
        for stream in &mut streams {
            stream.event_of("snapshot").await;
            events += 1;
        }
    }
    // Each look is shared by the streams of its second, however the machine spreads them.
    let looks = counted.looks.load(Ordering::Relaxed);
    assert!(looks * 2 < events, "{looks} looks for {events} events");
}

#[tokio::test]
async fn only_so_many_pages_are_open_and_a_closed_one_makes_room() {
    let config = AdminConfig { live_max: 1, ..AdminConfig::default() };
    let admin = Admin::new(None, config).overviewing(Arc::new(Teller));
    let (address, _listening) = listen(admin).await;
    let client = Client::new(address);
    let mut stream = live(&client).await;
    stream.event_of("snapshot").await;
    let refused = client.get("/v1/live").await;
    assert_eq!(refused.refused(429), "too_many_watchers");
    assert!(refused.headers.contains_key("retry-after"));
    drop(stream);
    spillway_testkit::within("room", async {
        while client.open(Method::GET, "/v1/live", Bytes::new()).await.response.status() == 429 {}
    })
    .await;
}

#[tokio::test]
async fn a_node_that_leaves_says_so_and_ends_the_stream() {
    let counted = Arc::new(Counted::default());
    let admin = Admin::new(None, AdminConfig::default()).overviewing(Arc::clone(&counted) as _);
    let (address, _listening) = listen(admin).await;
    let mut stream = live(&Client::new(address)).await;
    stream.event_of("snapshot").await;
    counted.is_leaving.store(true, Ordering::Relaxed);
    let end = stream.event_of("end").await;
    check("LiveEnd", &end.data);
    assert!(stream.event().await.is_none());
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let tokens = parse_token_file(&format!("rea read {READER}")).unwrap();
    let config = AdminConfig { tokens, ..AdminConfig::default() };
    let admin = Admin::new(None, config.clone()).overviewing(Arc::new(Teller));
    let (address, _listening) = listen(admin.clone()).await;
    let client = Client::new(address);
    assert_eq!(client.get("/v1/live").await.refused(401), "unauthorized");
    let mut stream = live(&client.token(READER)).await;
    stream.event_of("snapshot").await;
    admin.replace(AdminConfig { tokens: Vec::new(), requires_token: true, ..config });
    while let Some(event) = stream.event().await {
        assert_eq!(event.kind, "snapshot");
    }
}

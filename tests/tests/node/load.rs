//! Load that replicas report is read, ages, and steers requests.

use spillway_node::Node;
use spillway_tests::{
    Client, OK, Page, Scripted, Setup, chat, emulator, eventually, post, slow_emulator, spawn,
};

fn load(node: &Node, replica: &str, signal: &str) -> Option<f64> {
    let labels = [("replica", replica), ("signal", signal)];
    let page = Page::of(node);
    let is_known = page.sum("spillway_replica_load_trust", &labels) > 0.0;
    is_known.then(|| page.sum("spillway_replica_load", &labels))
}

#[tokio::test]
async fn a_vllm_replica_s_metrics_are_read_without_further_settings() {
    let emulator = slow_emulator(1, 0.1).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    let node = Setup::new().replica_with("gpu", &url, "kind = \"vllm\"").start().await;
    eventually("idle and known", || load(&node, "gpu", "running") == Some(0.0)).await;
    let address = node.addresses()[0];
    let streams: Vec<_> = (0..3)
        .map(|_| {
            let stream = chat("tiny", ",\"max_tokens\":400,\"ignore_eos\":true,\"stream\":true");
            spawn(async move { Client::once(address, stream).await })
        })
        .collect();
    eventually("three running", || load(&node, "gpu", "running") == Some(3.0)).await;
    assert!(load(&node, "gpu", "kv_use").is_some_and(|share| (0.0..=1.0).contains(&share)));
    assert_eq!(load(&node, "gpu", "gpu_use"), None, "vLLM does not tell, and unknown is not idle");
    streams.iter().for_each(tokio::task::JoinHandle::abort);
    node.stop().await;
}

#[tokio::test]
async fn what_a_replica_pushes_steers_the_policy_that_goes_by_it() {
    let emulator = emulator(2).await;
    let node = Setup::new()
        .emulated(&emulator)
        .table("[[route]]\nname = \"all\"\npolicy = \"weighted_least_pending\"")
        .start()
        .await;
    let admin = node.admin_address().expect("an address");
    for (replica, pending) in [("r0", 50), ("r1", 1)] {
        let path = format!("/replicas/{replica}/load");
        let pushed = Client::once(admin, post(&path, format!("{{\"pending\":{pending}}}"))).await;
        assert_eq!(pushed.status, 200);
        eventually("it is noted", || load(&node, replica, "pending").is_some()).await;
    }
    for _ in 0..20 {
        let reply = Client::once(node.addresses()[0], chat("tiny", ",\"max_tokens\":1")).await;
        assert_eq!(reply.status, 200);
    }
    assert_eq!(emulator.replica(0).stats().received, 0, "it has 50 to do first");
    // Old news are no news: both get requests again once the reports are forgotten.
    eventually("the reports are forgotten", || load(&node, "r0", "pending").is_none()).await;
    for _ in 0..20 {
        Client::once(node.addresses()[0], chat("tiny", ",\"max_tokens\":1")).await;
    }
    assert!(emulator.replica(0).stats().received > 0);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_loses_the_last_place_to_another_request_gets_the_next_one() {
    let replica = Scripted::start().await.serve(OK);
    let url = format!("http://{}", replica.address);
    let setup = Setup::new().set("node.workers = 4");
    let node = setup.replica_with("one", &url, "connections_max = 1").start().await;
    let address = node.addresses()[0];
    let clients = (0..24).map(|_| {
        spawn(async move {
            for _ in 0..60 {
                let reply = Client::once(address, chat("tiny", "")).await;
                assert_eq!(reply.status, 200, "{}", reply.text());
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.await.expect("all are served");
    }
    node.stop().await;
}

#[tokio::test]
async fn load_that_comes_with_a_reply_is_read() {
    let reply = OK.replacen(
        "\r\n",
        "\r\nendpoint-load-metrics: JSON {\"named_metrics\":{\"queue_size\":7}}\r\n",
        1,
    );
    let telling = Scripted::start().await.serve(reply);
    let node = Setup::new().replica("telling", telling.address).start().await;
    Client::once(node.addresses()[0], chat("tiny", "")).await;
    eventually("it is noted", || load(&node, "telling", "queued").is_some()).await;
    node.stop().await;
}

#[tokio::test]
async fn a_mapping_of_one_s_own_reads_any_page() {
    let page = "# TYPE jobs gauge\njobs{state=\"waiting\"} 4\njobs{state=\"done\"} 99\nused 30\ntotal 120\n";
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len());
    let exporting = Scripted::start().await.serve(reply);
    let mapping = "[mapping.mine]\nqueued = { metrics = ['jobs{state=\"waiting\"}'] }\n\
        kv_use = { metrics = [\"used\"], ratio_to = [\"total\"] }";
    let lines = "metrics = { path = \"/stats\", mapping = \"mine\" }";
    let node = Setup::new()
        .table(mapping)
        .replica_with("own", &format!("http://{}", exporting.address), lines)
        .start()
        .await;
    eventually("it is read", || load(&node, "own", "queued") == Some(4.0)).await;
    assert_eq!(load(&node, "own", "kv_use"), Some(0.25));
    assert!(exporting.requests.last().first_line().starts_with("GET /stats "));
    node.stop().await;
}

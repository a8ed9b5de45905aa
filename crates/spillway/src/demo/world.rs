//! The demo's servers: emulated replicas behind a node.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use spillway_emulator::{Config as EmulatorConfig, Emulator, EngineConfig, Profile};
use spillway_node::{Config, Node};

/// Replicas in the demo.
const REPLICAS: u16 = 4;
/// The demo runs this many times faster than the modelled machine would.
const SPEED: f64 = 5.0;
/// The model that the replicas serve.
pub(crate) const MODEL: &str = "llama-3.1-8b";

/// A node, its replicas, and where they are.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) emulator: Emulator,
    pub(crate) node: Node,
}

impl World {
    /// Starts everything. `listen` is where clients connect, if it is free.
    pub(crate) async fn start(listen: SocketAddr) -> Result<Self> {
        let emulator = Emulator::start(EmulatorConfig {
            replicas: REPLICAS,
            models: vec![MODEL.to_owned()],
            engine: EngineConfig::from_profile(Profile::L4),
            time_scale: 1.0 / SPEED,
            ..EmulatorConfig::default()
        })
        .await
        .context("can't start the emulated replicas")?;
        let replicas = emulator.addresses();
        let node = match start_node(listen, &replicas).await {
            Ok(node) => node,
            // Something else has the port: take any.
            Err(_) => start_node(SocketAddr::new(listen.ip(), 0), &replicas).await?,
        };
        Ok(Self { emulator, node })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.node.addresses()[0]
    }

    pub(crate) fn introduction(&self, seconds: u64) -> String {
        format!(
            "A gateway on http://{}, {REPLICAS} emulated replicas (NVIDIA L4, 8B model, {SPEED} times \
             faster than real).\nA mixed load for {seconds} s: chats that stream and share a system \
             prompt, long unary ones, embeddings.\n",
            self.address()
        )
    }

    pub(crate) fn farewell(&self) -> String {
        let body = format!(
            r#"{{"model":"{MODEL}","stream":true,"max_tokens":24,"messages":[{{"role":"user","content":"Hello"}}]}}"#
        );
        let metrics = self.node.admin_address().map_or_else(String::new, |address| {
            format!("\nMetrics:  curl -s http://{address}/metrics")
        });
        format!(
            "\nThe node stays up. Try:\n  curl -N http://{}/v1/chat/completions -H 'content-type: \
             application/json' -d '{body}'{metrics}\nCtrl-C ends it.",
            self.address()
        )
    }

    pub(crate) async fn stop(self) {
        self.node.stop().await;
        self.emulator.shutdown().await;
    }
}

async fn start_node(listen: SocketAddr, replicas: &[SocketAddr]) -> Result<Node> {
    let mut text = format!(
        "[node]\nregion = \"demo\"\nexpose_routing = true\n[[listener]]\naddress = \"{listen}\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[[route]]\nname = \"llm\"\npolicy = \"power_of_two\"\n\
         inject_usage = true\n"
    );
    for (index, address) in replicas.iter().enumerate() {
        text += &format!(
            "[[replica]]\nname = \"replica-{index}\"\nurl = \"http://{address}\"\nmodels = [\"{MODEL}\"]\n"
        );
    }
    let config = Config::parse(&text, Path::new("demo.toml"), [])?;
    Node::start(config).await.context("can't start the node")
}

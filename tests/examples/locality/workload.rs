//! Requests of the clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde_json::{Value, json};
use spillway_tests::{Client, post};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::Options;

/// Words that prompts are made of.
const WORDS: [&str; 16] = [
    "river", "market", "signal", "garden", "engine", "copper", "window", "letter", "winter",
    "island", "bridge", "candle", "forest", "harbor", "mirror", "valley",
];

/// A conversation that goes on.
#[derive(Clone, Debug)]
struct Chat {
    messages: Vec<Value>,
}

/// Requests of one region's clients, at random moments, to any of its nodes.
pub(crate) async fn region_load(
    options: &Options,
    region: usize,
    nodes: Vec<SocketAddr>,
    (start, warm_up, end): (Instant, Duration, Duration),
) -> (Vec<f64>, usize) {
    let mut rng = fastrand::Rng::with_seed(options.seed * 1_000 + region as u64);
    let chats: Arc<Mutex<Vec<Chat>>> = Arc::default();
    let times: Arc<Mutex<(Vec<f64>, usize)>> = Arc::default();
    let mut at = Duration::ZERO;
    let mut requests = JoinSet::new();
    while at < end {
        at += Duration::from_secs_f64(-rng.f64().max(1e-9).ln() / options.rate);
        // wait: until the next request is due
        tokio::time::sleep_until((start + at).into()).await;
        let chat = next_chat(options, region, &chats, &mut rng).await;
        let address = nodes[rng.usize(..nodes.len())];
        let (chats, times) = (Arc::clone(&chats), Arc::clone(&times));
        let is_measured = at > warm_up;
        let tokens = 10 + rng.u32(..30);
        requests.spawn(async move {
            let sent = Instant::now();
            let ended = ask(address, &chat, tokens).await;
            let mut times = times.lock().await;
            match ended {
                Ok(first) if is_measured => times.0.push((first - sent).as_secs_f64() * 1e3),
                Ok(_) => {}
                Err(why) => {
                    times.1 += 1;
                    eprintln!("a request failed: {why}");
                }
            }
            chats.lock().await.push(chat);
        });
    }
    while requests.join_next().await.is_some() {}
    let mut times = times.lock().await;
    std::mem::take(&mut *times)
}

/// Half of the requests go on with a conversation, the others begin one.
async fn next_chat(
    options: &Options,
    region: usize,
    chats: &Mutex<Vec<Chat>>,
    rng: &mut fastrand::Rng,
) -> Chat {
    let mut open = chats.lock().await;
    let is_hot = rng.u64(..100) < options.hot_percent;
    if !open.is_empty() && rng.bool() && !is_hot {
        let place = rng.usize(..open.len());
        let mut chat = open.swap_remove(place);
        if chat.messages.len() < 9 {
            let answer = words(rng.u64(..), 40);
            chat.messages.push(json!({"role": "assistant", "content": answer}));
            chat.messages.push(json!({"role": "user", "content": words(rng.u64(..), 60)}));
            return chat;
        }
    }
    // Some prompts are used far more often than others, and not the same ones in every region.
    let rank = ((options.prompts as f64).powf(rng.f64()) - 1.0) as usize;
    let prompt = if is_hot { 0 } else { (rank + 7 * region) % options.prompts };
    let messages = vec![
        json!({"role": "system", "content": words(prompt as u64, 900)}),
        json!({"role": "user", "content": words(rng.u64(..), 60)}),
    ];
    Chat { messages }
}

fn words(seed: u64, count: usize) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = String::new();
    for _ in 0..count {
        text.push_str(WORDS[rng.usize(..WORDS.len())]);
        text.push(' ');
    }
    text
}

/// Sends a chat. Returns the moment at which the first piece of the answer's stream arrived.
async fn ask(address: SocketAddr, chat: &Chat, tokens: u32) -> Result<Instant, String> {
    let body =
        json!({"model": "tiny", "messages": chat.messages, "stream": true, "max_tokens": tokens});
    let mut client = Client::http1(address).await;
    let request = post("/v1/chat/completions", body.to_string());
    let response = client.send(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    let mut body = response.into_body();
    let mut first = None;
    while let Some(frame) = body.frame().await {
        frame.map_err(|error| error.to_string())?;
        first.get_or_insert_with(Instant::now);
    }
    match first {
        Some(first) if status.is_success() => Ok(first),
        _ => Err(format!("{status}")),
    }
}

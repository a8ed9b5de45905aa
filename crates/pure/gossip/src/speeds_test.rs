use std::time::Duration;

use spillway_codec::golden;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

#[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
fn start() -> Instant {
    Instant::now()
}

fn fast() -> Speed {
    Speed {
        floor_ms: 12.0,
        prefill_ms: 0.05,
        prefill_ms_per_thousand: 0.0017,
        prefill_per_running: 0.03,
        decode_ms: 9.5,
        step_ms: Speed::UNKNOWN.step_ms,
        step_ms_per_thousand: Speed::UNKNOWN.step_ms_per_thousand,
        is_decode_known: true,
        ends_per_s: 31.0,
        bytes_per_token: 4.2,
        kv_tokens: 500_000.0,
        trust: 0.8,
    }
}

fn models(names: &[&str]) -> BTreeMap<ModelName, Speed> {
    names.iter().map(|name| (ModelName::from(*name), fast())).collect()
}

fn eu() -> RegionName {
    "eu".into()
}

fn take(speeds: &mut Speeds, from: &str, bytes: &[u8], now: Instant) -> Result<(), GossipError> {
    speeds.handle_datagram(now, &from.into(), &eu(), bytes)
}

#[test]
fn what_is_told_is_read_within_the_error_of_its_scale() {
    let (mut told, mut heard) = (Speeds::new(7), Speeds::new(1));
    let datagrams = told.tell(&models(&["llama"]));
    let now = start();
    take(&mut heard, "a", &datagrams[0], now).unwrap();
    let speed = heard.speed(&eu(), NameId::of_model(&"llama".into()), now).unwrap();
    let is_near = |read: f32, told: f32| (read / told - 1.0).abs() < 0.05;
    assert!(is_near(speed.floor_ms, 12.0) && is_near(speed.prefill_ms, 0.05), "{speed:?}");
    assert!(is_near(speed.prefill_ms_per_thousand, 0.0017), "{speed:?}");
    assert!(is_near(speed.prefill_per_running, 0.03), "{speed:?}");
    assert!(is_near(speed.decode_ms, 9.5) && is_near(speed.ends_per_s, 31.0), "{speed:?}");
    assert!(is_near(speed.bytes_per_token, 4.2) && is_near(speed.trust, 0.8), "{speed:?}");
    assert_eq!(speed.kv_tokens, 0.0, "a region's caches are no one cache");
    assert_eq!(heard.speed(&eu(), NameId::of_model(&"qwen".into()), now), None);
    assert_eq!(heard.speed(&"us".into(), NameId::of_model(&"llama".into()), now), None);
}

#[test]
fn the_bytes_are_those_on_file_and_few() {
    let lines = vec![SpeedLine::new(NameId::of_model(&"llama".into()), &fast())];
    let telling = SpeedsTelling { incarnation: 1_800_000_000_000, seq: 70_000, lines };
    golden::check(FOLDER, "speeds", &telling);
    assert_eq!(spillway_codec::payload_bytes(&telling.lines[0]).unwrap(), 12);
}

#[test]
fn many_models_take_several_datagrams_that_fit() {
    let names: Vec<String> = (0..300).map(|n| format!("model-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let datagrams = Speeds::new(1).tell(&models(&names));
    assert!(datagrams.len() > 1);
    assert!(datagrams.iter().all(|datagram| datagram.len() <= 1_150));
    let (mut heard, now) = (Speeds::new(2), start());
    datagrams.iter().for_each(|datagram| take(&mut heard, "a", datagram, now).unwrap());
    let is_known = |name: &&str| heard.speed(&eu(), NameId::of_model(&(*name).into()), now);
    assert!(names.iter().all(|name| is_known(name).is_some()));
}

#[test]
fn an_older_telling_never_replaces_a_newer_one() {
    let (mut first, mut heard, now) = (Speeds::new(5), Speeds::new(1), start());
    let old = first.tell(&models(&["llama"]));
    let new = first.tell(&models(&["llama"]));
    take(&mut heard, "a", &new[0], now).unwrap();
    assert_eq!(take(&mut heard, "a", &old[0], now), Err(GossipError::Old("a".into())));
    assert_eq!(
        take(&mut heard, "a", &new[0], now),
        Err(GossipError::Old("a".into())),
        "told twice"
    );
    let reborn = Speeds::new(6).tell(&models(&["llama"]));
    take(&mut heard, "a", &reborn[0], now).unwrap();
    take(&mut heard, "b", &old[0], now).unwrap();
}

#[test]
fn silence_makes_a_speed_unknown_and_a_node_that_left_is_forgotten() {
    let (mut heard, now) = (Speeds::new(1), start());
    take(&mut heard, "a", &Speeds::new(5).tell(&models(&["llama"]))[0], now).unwrap();
    let id = NameId::of_model(&"llama".into());
    let limit = Duration::from_millis(u64::from(AGE_MS_MAX));
    assert!(heard.speed(&eu(), id, now + limit).is_some());
    assert_eq!(heard.speed(&eu(), id, now + limit + Duration::from_millis(1)), None);
    heard.keep(|_| true, now);
    assert!(heard.speed(&eu(), id, now).is_some());
    heard.keep(|_| false, now);
    assert!(heard.heard.is_empty());
}

#[test]
fn any_bytes_are_read_or_refused_and_no_speed_is_nonsense() {
    let mut rng = fastrand::Rng::with_seed(9);
    let sample = Speeds::new(5).tell(&models(&["llama", "qwen"])).remove(0);
    let (now, mut read) = (start(), 0);
    for turn in 0..50_000_u64 {
        let lines: Vec<SpeedLine> = (0..rng.usize(0..4)).map(|_| any_line(&mut rng)).collect();
        let telling = SpeedsTelling { incarnation: 9, seq: turn, lines };
        let mut bytes = encode(&telling).unwrap_or_else(|_| sample.clone()).to_vec();
        if rng.bool() {
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let mut heard = Speeds::new(1);
        read += usize::from(take(&mut heard, "a", &bytes, now).is_ok());
        for (speed, _) in heard.heard.values().flat_map(|region| region.models.values()) {
            let numbers = [speed.floor_ms, speed.prefill_ms, speed.decode_ms, speed.ends_per_s];
            assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0));
            assert!(speed.bytes_per_token > 0.0 && (0.0..=1.0).contains(&speed.trust));
        }
    }
    assert!(read > 10_000);
}

fn any_line(rng: &mut fastrand::Rng) -> SpeedLine {
    let id = NameId::of_model(&rng.u8(..).to_string().as_str().into());
    let mut code = || rng.u16(..);
    SpeedLine {
        id,
        floor: code(),
        prefill: code(),
        prefill_per_thousand: code(),
        prefill_per_running: code(),
        decode: code(),
        ends: code(),
        bytes_per_token: code(),
        trust: code(),
    }
}

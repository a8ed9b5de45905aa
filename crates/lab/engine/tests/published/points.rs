//! Published measurements, and the same quantities by the model.

use spillway_engine::{EngineConfig, Profile};

use crate::load::{Load, Outcome};

/// Load under which figures were published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Machine and model: the name of a profile, or `cpu`.
    pub(crate) machine: &'static str,
    /// Load, in words.
    pub(crate) load: &'static str,
    /// Name of the source in the page.
    pub(crate) source: &'static str,
    pub(crate) run: fn() -> Outcome,
    pub(crate) figures: &'static [Figure],
}

/// One published figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) quantity: Quantity,
    pub(crate) published: f64,
    /// Largest error that is accepted, in percent: the error seen, rounded up.
    pub(crate) bound_percent: f64,
}

/// Quantity that was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    /// Name and unit.
    pub(crate) name: &'static str,
    /// The quantity by the model.
    pub(crate) of: fn(&Outcome) -> f64,
}

pub(crate) const FIRST: Quantity =
    Quantity { name: "first token, ms", of: Outcome::first_token_ms };
pub(crate) const GAP: Quantity = Quantity { name: "between tokens, ms", of: Outcome::token_gap_ms };
pub(crate) const RATE: Quantity = Quantity { name: "output tokens/s", of: Outcome::tokens_per_s };
pub(crate) const SECONDS: Quantity =
    Quantity { name: "until all are done, s", of: Outcome::seconds };

/// Figures that the profiles were made from.
pub(crate) const FITTED: &[Setting] = &[
    Setting {
        machine: "l4",
        load: "one prompt of 512",
        source: "SkyWalker",
        run: || Load::single(l4(), 512, 1).run(),
        figures: &[figure(FIRST, 300.0, 1.0)],
    },
    Setting {
        machine: "a100",
        load: "1,000 more prompt tokens",
        source: "GORGO",
        run: || Load::single(a100(), 2_000, 1).run(),
        figures: &[figure(
            Quantity {
                name: "first token later by, ms",
                of: |longer| {
                    longer.first_token_ms() - Load::single(a100(), 1_000, 1).run().first_token_ms()
                },
            },
            93.8,
            1.0,
        )],
    },
    Setting {
        machine: "h100",
        load: "prompts of 2,048, full steps",
        source: "calibration",
        run: || Load { requests: 100, ..Load::single(h100(), 2_048, 1) }.run(),
        figures: &[figure(
            Quantity { name: "prompt tokens/s", of: |all| 100.0 * 2_048.0 / all.seconds() },
            15_900.0,
            1.0,
        )],
    },
    Setting {
        machine: "h100",
        load: "–",
        source: "calibration",
        run: || Load::single(h100(), 1, 1).run(),
        figures: &[figure(
            Quantity { name: "KV tokens", of: |_| f64::from(Profile::H100.kv_tokens()) },
            301_808.0,
            1.0,
        )],
    },
];

/// Figures that the profiles were not made from.
pub(crate) const HELD_OUT: &[Setting] = &[
    Setting {
        machine: "l4",
        load: "chats, one at a time",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(l4(), 100).at_a_time(1).run(),
        figures: &[figure(FIRST, 161.63, 9.0), figure(GAP, 61.2, 12.0)],
    },
    Setting {
        machine: "l4",
        load: "chats, 8 at a time",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(l4(), 300).at_a_time(8).run(),
        figures: &[figure(RATE, 116.6, 15.0)],
    },
    Setting {
        machine: "l4",
        load: "100 chats at once",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(l4(), 100).run(),
        figures: &[figure(RATE, 364.73, 72.0)],
    },
    Setting {
        machine: "l4",
        load: "300 chats, 5 a second",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(l4(), 300).per_s(5.0).run(),
        figures: &[
            figure(FIRST, 41_177.07, 26.0),
            figure(GAP, 118.65, 1.0),
            figure(SECONDS, 217.7, 27.0),
        ],
    },
    Setting {
        machine: "l4",
        load: "–",
        source: "vLLM #10517 (RTX 3090)",
        run: || Load::single(l4(), 1, 1).run(),
        figures: &[figure(
            Quantity { name: "KV tokens", of: |_| f64::from(Profile::L4.kv_tokens()) },
            31_232.0,
            29.0,
        )],
    },
    Setting {
        machine: "a100",
        load: "one prompt of 500",
        source: "NIM",
        run: || Load::single(a100(), 500, 10).run(),
        figures: &[figure(FIRST, 48.3, 13.0)],
    },
    Setting {
        machine: "a100",
        load: "chats, one at a time",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(a100(), 100).at_a_time(1).run(),
        figures: &[figure(FIRST, 46.45, 45.0), figure(GAP, 13.19, 46.0)],
    },
    Setting {
        machine: "a100",
        load: "seen chats, one at a time",
        source: "AccelMark, vLLM 0.20.1",
        run: || Load::chats(a100(), 100).at_a_time(1).seen().run(),
        figures: &[figure(FIRST, 27.78, 72.0), figure(GAP, 10.77, 34.0)],
    },
    Setting {
        machine: "a100",
        load: "chats, 8 at a time",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(a100(), 300).at_a_time(8).run(),
        figures: &[figure(RATE, 551.9, 73.0)],
    },
    Setting {
        machine: "a100",
        load: "seen chats, 8 at a time",
        source: "AccelMark, vLLM 0.20.1",
        run: || Load::chats(a100(), 300).at_a_time(8).seen().run(),
        figures: &[figure(RATE, 712.3, 43.0)],
    },
    Setting {
        machine: "a100",
        load: "100 chats at once",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(a100(), 100).run(),
        figures: &[figure(RATE, 2_696.82, 48.0)],
    },
    Setting {
        machine: "a100",
        load: "100 seen chats at once",
        source: "AccelMark, vLLM 0.20.1",
        run: || Load::chats(a100(), 100).seen().run(),
        figures: &[figure(RATE, 3_908.22, 41.0)],
    },
    Setting {
        machine: "a100",
        load: "300 chats, 5 a second",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(a100(), 300).per_s(5.0).run(),
        figures: &[figure(FIRST, 55.35, 37.0), figure(GAP, 21.7, 57.0)],
    },
    Setting {
        machine: "a100",
        load: "300 seen chats, 5 a second",
        source: "AccelMark, vLLM 0.20.1",
        run: || Load::chats(a100(), 300).per_s(5.0).seen().run(),
        figures: &[figure(FIRST, 40.2, 68.0), figure(GAP, 13.21, 38.0)],
    },
    Setting {
        machine: "a100",
        load: "300 chats, 100 a second",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::chats(a100(), 300).per_s(100.0).run(),
        figures: &[figure(GAP, 67.8, 49.0), figure(SECONDS, 37.1, 45.0)],
    },
    Setting {
        machine: "a100",
        load: "300 seen chats, 100 a second",
        source: "AccelMark, vLLM 0.20.1",
        run: || Load::chats(a100(), 300).per_s(100.0).seen().run(),
        figures: &[figure(GAP, 22.18, 7.0), figure(SECONDS, 22.3, 37.0)],
    },
    Setting {
        machine: "a100",
        load: "prompts of 28,640, one at a time",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::long(a100(), 10, 1).run(),
        figures: &[figure(FIRST, 2_838.69, 2.0), figure(GAP, 30.57, 71.0)],
    },
    Setting {
        machine: "a100",
        load: "prompts of 28,640, one at a time",
        source: "AccelMark, vLLM 0.20.1",
        run: || Load::long(a100(), 10, 1).run(),
        figures: &[figure(FIRST, 3_178.55, 12.0), figure(GAP, 13.1, 32.0)],
    },
    Setting {
        machine: "a100",
        load: "prompts of 28,640, 8 at a time",
        source: "AccelMark, vLLM 0.7.3",
        run: || Load::long(a100(), 80, 8).run(),
        figures: &[figure(RATE, 67.1, 12.0)],
    },
    Setting {
        machine: "a100",
        load: "prompts of 28,640, 8 at a time",
        source: "AccelMark, vLLM 0.20.1",
        run: || Load::long(a100(), 80, 8).run(),
        figures: &[figure(RATE, 58.7, 28.0)],
    },
];

fn l4() -> EngineConfig {
    EngineConfig::from_profile(Profile::L4)
}

fn a100() -> EngineConfig {
    EngineConfig::from_profile(Profile::A100)
}

fn h100() -> EngineConfig {
    EngineConfig::from_profile(Profile::H100)
}

/// Makes a figure.
pub(crate) const fn figure(quantity: Quantity, published: f64, bound_percent: f64) -> Figure {
    Figure { quantity, published, bound_percent }
}

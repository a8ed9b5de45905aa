//! Figures of a vLLM on the CPU that tests/servers/engine.py measured, and the cost that it fitted.

use std::num::NonZeroU32;

use spillway_engine::{EngineConfig, StepCost};

use crate::load::Load;
use crate::points::{FIRST, GAP, SECONDS, Setting, figure};

/// Figures that the cost was fitted to.
pub(crate) const FITTED: &[Setting] = &[
    Setting {
        machine: "cpu",
        load: "one prompt of 256",
        source: "here",
        run: || Load::single(cpu(), 256, 2).run(),
        figures: &[figure(FIRST, 16.41, 4.0)],
    },
    Setting {
        machine: "cpu",
        load: "one prompt of 1,900",
        source: "here",
        run: || Load::single(cpu(), 1_900, 2).run(),
        figures: &[figure(FIRST, 102.53, 4.0)],
    },
    Setting {
        machine: "cpu",
        load: "one seen prompt of 256",
        source: "here",
        run: || Load::equal(cpu(), 1, 256).seen().run(),
        figures: &[figure(GAP, 4.48, 1.0)],
    },
    Setting {
        machine: "cpu",
        load: "4 seen prompts of 1,500 at once",
        source: "here",
        run: || Load::equal(cpu(), 4, 1_500).seen().run(),
        figures: &[figure(GAP, 10.61, 1.0)],
    },
    Setting {
        machine: "cpu",
        load: "8 seen prompts of 700 at once",
        source: "here",
        run: || Load::equal(cpu(), 8, 700).seen().run(),
        figures: &[figure(GAP, 10.9, 1.0)],
    },
];

/// Figures that the fit did not know.
pub(crate) const HELD_OUT: &[Setting] = &[
    Setting {
        machine: "cpu",
        load: "one prompt of 512",
        source: "here",
        run: || Load::single(cpu(), 512, 2).run(),
        figures: &[figure(FIRST, 28.6, 5.0)],
    },
    Setting {
        machine: "cpu",
        load: "one prompt of 1,024",
        source: "here",
        run: || Load::single(cpu(), 1_024, 2).run(),
        figures: &[figure(FIRST, 50.82, 10.0)],
    },
    Setting {
        machine: "cpu",
        load: "one seen prompt of 256",
        source: "here",
        run: || Load::single(cpu(), 256, 2).seen().run(),
        figures: &[figure(FIRST, 9.1, 35.0)],
    },
    Setting {
        machine: "cpu",
        load: "one seen prompt of 512",
        source: "here",
        run: || Load::single(cpu(), 512, 2).seen().run(),
        figures: &[figure(FIRST, 11.92, 48.0)],
    },
    Setting {
        machine: "cpu",
        load: "one seen prompt of 1,024",
        source: "here",
        run: || Load::single(cpu(), 1_024, 2).seen().run(),
        figures: &[figure(FIRST, 12.23, 45.0)],
    },
    Setting {
        machine: "cpu",
        load: "one seen prompt of 1,900",
        source: "here",
        run: || Load::single(cpu(), 1_900, 2).seen().run(),
        figures: &[figure(FIRST, 12.43, 47.0)],
    },
    Setting {
        machine: "cpu",
        load: "one seen prompt of 1,500",
        source: "here",
        run: || Load::equal(cpu(), 1, 1_500).seen().run(),
        figures: &[figure(GAP, 5.72, 1.0)],
    },
    Setting {
        machine: "cpu",
        load: "4 seen prompts of 256 at once",
        source: "here",
        run: || Load::equal(cpu(), 4, 256).seen().run(),
        figures: &[figure(GAP, 6.44, 12.0)],
    },
    Setting {
        machine: "cpu",
        load: "8 seen prompts of 256 at once",
        source: "here",
        run: || Load::equal(cpu(), 8, 256).seen().run(),
        figures: &[figure(GAP, 8.13, 10.0)],
    },
    Setting {
        machine: "cpu",
        load: "40 prompts of 256 at once",
        source: "here",
        run: || Load::equal(cpu(), 40, 256).run(),
        figures: &[
            figure(FIRST, 1_572.70, 21.0),
            figure(GAP, 10.49, 30.0),
            figure(SECONDS, 3.55, 20.0),
        ],
    },
];

/// Returns the engine of tests/servers/engine.py: the cost comes from the script's fit, the limits
/// are those it starts vLLM with.
fn cpu() -> EngineConfig {
    let cost = StepCost {
        base_ns: 4_025_220,
        prefill_token_ns: 49_164,
        sequence_ns: 133_819,
        kv_token_ns: 991,
    };
    EngineConfig {
        cost,
        block_tokens: NonZeroU32::new(32).unwrap(),
        kv_blocks: NonZeroU32::new(256).unwrap(),
        running_max: NonZeroU32::new(8).unwrap(),
        context_tokens_max: 2_048,
        watermark_blocks: 0,
        ..EngineConfig::default()
    }
}

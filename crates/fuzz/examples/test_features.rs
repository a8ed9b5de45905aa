//! Nothing. Cargo builds dependencies with the features of the workspace's tests only where a test or an
//! example is built too: with this one, fuzzing shares them with the tests. A library, so that it is not
//! linked: what it would be linked with lacks libFuzzer.

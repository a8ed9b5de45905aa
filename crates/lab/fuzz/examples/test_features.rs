//! Empty example, so that fuzzing shares built dependencies with the tests: cargo builds
//! dependencies with the features of the workspace's tests only if a test or an example is built,
//! too. A library, so that it is not linked, which would fail without libFuzzer.

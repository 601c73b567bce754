//! Tools in real wardens. The tests are in `tests/tools`; `make build` makes what they run.

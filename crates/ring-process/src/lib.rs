//! ring-process

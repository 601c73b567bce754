//! ring-container

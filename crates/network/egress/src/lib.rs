//! What the engine and the gateway say to each other, without either of them: tasks, secrets and
//! where they are bound, limits, events, and orders over one socket.

mod control;
mod environment;
mod event;
mod provider;
mod secret;
mod task;

pub use control::{Answer, Control, ControlError, Entrance, Order, Question, Reply};
pub use environment::environment;
pub use event::{Door, Event, Verdict};
pub use provider::ProviderError;
pub use secret::{Form, OAuth, Provider, SecretSpec, SigV4};
pub use task::{
    Authority, InferenceSpec, Limits, ModelProvider, Names, Settings, Shape, TaskInfo, TaskSpec,
    Usage,
};

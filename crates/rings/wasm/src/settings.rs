//! How WASM is compiled and run.

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Result,
};

/// Of a tool's own code; its recursion traps beyond.
pub const STACK_BYTES: usize = 512 << 10;

/// Host functions run on the same stack.
const WHOLE_STACK_BYTES: usize = STACK_BYTES + (512 << 10);

/// Most bytes of one linear memory; each call has its own, lower limit.
const MEMORY_BYTES: usize = 512 << 20;

/// Pages that a call wrote are cleared rather than given back, up to here: the next call then takes
/// no page fault.
const KEPT_BYTES: usize = 1 << 20;

/// What a slot of the pool takes of what a process may ever write to, used or not: a stack, eight tables,
/// the state of instances.
const SLOT_BYTES: u64 = 16 << 20;

/// How many calls at a time a process may have slots for, of so many at most. Where no control group
/// counts what is used, `writable_bytes` is all that it may map to write to: the pool takes half.
pub fn slots(most: u32, writable_bytes: Option<u64>) -> u32 {
    let fit = |bytes| u32::try_from(bytes / 2 / SLOT_BYTES).unwrap_or(u32::MAX);
    writable_bytes.map_or(most, |bytes| fit(bytes).clamp(1, most))
}

/// Everything that changes what code is made, so everything on which compiler and warden agree.
/// Change `ringwall_wire::COMPILED_CODE` with it.
fn settings() -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        // Time and work are limited in all code; there is no second, unlimited kind.
        .epoch_interruption(true)
        .consume_fuel(true)
        // The same input gives the same bytes, on every machine.
        .relaxed_simd_deterministic(true)
        .wasm_memory64(false)
        .concurrency_support(false)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(WHOLE_STACK_BYTES)
        // Nobody reads native backtraces of a tool.
        .generate_address_map(false)
        .native_unwind_info(false);
    config
}

/// Compiles, and runs nothing. For every processor of this architecture, or with all that this one
/// can do.
#[cfg(feature = "compiler")]
pub fn compiler_engine(for_any_processor: bool) -> Result<Engine> {
    let mut config = settings();
    config.cranelift_nan_canonicalization(true);
    if for_any_processor {
        // With a target that is given, nothing is inferred from the processor at hand.
        config.target(&format!("{}-unknown-linux-musl", std::env::consts::ARCH))?;
    }
    Engine::new(&config)
}

/// Runs compiled code in slots of a pool that is reserved once, for so many calls at a time.
pub fn warden_engine(calls: u32) -> Result<Engine> {
    let mut pool = PoolingAllocationConfig::new();
    // A tool that embeds an interpreter has many instances and tables, and a large one.
    pool.total_memories(calls)
        .total_component_instances(calls)
        .total_stacks(calls)
        .total_core_instances(16 * calls)
        .total_tables(8 * calls)
        .max_core_instances_per_component(256)
        .max_tables_per_component(64)
        .max_memories_per_component(4)
        .max_tables_per_module(16)
        .max_component_instance_size(8 << 20)
        .max_core_instance_size(1 << 20)
        .max_memory_size(MEMORY_BYTES)
        .table_elements(200_000)
        .linear_memory_keep_resident(KEPT_BYTES)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .max_unused_warm_slots(16)
        // Asks the kernel which pages a call wrote, so that only those are cleared.
        .pagemap_scan(Enabled::Auto);
    let mut config = settings();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .wasm_backtrace_max_frames(None);
    Engine::new(&config)
}

#[cfg(test)]
mod tests {
    use super::slots;

    #[test]
    fn a_warden_has_as_many_slots_as_fit_into_what_it_may_write() {
        assert_eq!(slots(64, None), 64);
        assert_eq!(slots(64, Some(256 << 20)), 8);
        assert_eq!(slots(64, Some(1 << 20)), 1);
        assert_eq!(slots(64, Some(u64::MAX)), 64);
    }
}

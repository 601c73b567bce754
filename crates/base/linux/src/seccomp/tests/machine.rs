//! A small machine for the subset of classic BPF that the compiler writes, to ask a program for
//! its answer without a kernel.

use crate::seccomp::compile::{
    AND, Instruction, JUMP, JUMP_ANY_BIT, JUMP_AT_LEAST, JUMP_EQUAL, LOAD, RETURN,
};

pub(super) const X86_64: u32 = 0xc000_003e;
pub(super) const I386: u32 = 0x4000_0003;

/// One system call as a filter sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) architecture: u32,
    pub(super) arguments: [u64; 6],
}

impl Call {
    pub(super) fn new(number: u32, arguments: &[u64]) -> Call {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Call { number, architecture: X86_64, arguments: all }
    }

    /// The 32 bits at `offset` in `struct seccomp_data`.
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.architecture,
            16..64 if offset.is_multiple_of(4) => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
            _ => panic!("the compiler wrote a load of offset {offset}"),
        }
    }
}

/// The program's answer and how many instructions it took.
pub(super) fn run(program: &[Instruction], call: Call) -> (u32, usize) {
    let (mut accumulator, mut at, mut steps) = (0, 0, 0);
    loop {
        let Instruction { code, when_true, when_false, operand } = program[at];
        let jump = |holds| 1 + usize::from(if holds { when_true } else { when_false });
        steps += 1;
        at += match code {
            RETURN => return (operand, steps),
            LOAD => {
                accumulator = call.word(operand);
                1
            }
            AND => {
                accumulator &= operand;
                1
            }
            JUMP => 1 + operand as usize,
            JUMP_EQUAL => jump(accumulator == operand),
            JUMP_AT_LEAST => jump(accumulator >= operand),
            JUMP_ANY_BIT => jump(accumulator & operand != 0),
            other => panic!("the compiler wrote instruction {other:#x}"),
        };
    }
}

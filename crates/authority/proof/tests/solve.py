"""cvc5 as a program, from its Python package: reads SMT-LIB from standard input, prints the answers.

Debian's own cvc5 is too old, and the package has the library without the program.
"""

import sys

import cvc5

terms = cvc5.TermManager()
solver = cvc5.Solver(terms)
for word in sys.argv[1:]:
    if word.startswith("--tlimit="):
        solver.setOption("tlimit", word.removeprefix("--tlimit="))
parser = cvc5.InputParser(solver)
parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, sys.stdin.read(), "stdin")
symbols = parser.getSymbolManager()
while True:
    command = parser.nextCommand()
    if command.isNull():
        break
    sys.stdout.write(command.invoke(solver, symbols))
sys.stdout.flush()

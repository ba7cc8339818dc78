"""Operations of operators, as values: names, arguments, pages. No I/O."""

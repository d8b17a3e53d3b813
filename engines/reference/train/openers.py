"""Where self-written user turns start: task openers in four groups and seed words to fill them.

Openers break off early on purpose: the target itself goes on, so no opener is anybody's benchmark prompt.
"""


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CHAT = (
    "How do I {verb} a {word}",
    "What makes {word} so",
    "Tell me about",
    "Can you recommend",
    "I feel {mood} about my {word}",
    "Why do people {verb}",
    "Explain {word} to",
    "What is the difference between {word} and",
    "Plan a {word}",
    "Give me advice on",
    "Write a short story about a {word}",
    "Write a poem",
    "Describe the history of {word}",
    "List some reasons",
    "Imagine you are a {word}",
    "Compose an email to my {word}",
    "Help me {verb}",
    "Which {word}",
    "What should I know before",
    "Pros and cons of",
    "Give three tips",
    "{Word}",
)
CODE = (
    "Write a Python function that",
    "Write a Python function called {verb}_{word} that takes",
    "Finish this function:\n\n```python\ndef {verb}_{word}(",
    'Complete the code below.\n\ndef {verb}_{word}(items):\n    """',
    "from typing import List\n\n\ndef {verb}_{word}(",
    "What does this code print?\n\n```python\n",
    "Why does my loop over the {word} list",
    "Write a SQL query that",
    "Explain this bash command:",
    "Write a JavaScript function to {verb}",
    "Create a class {Word} with",
    "How can I read a {word} file in",
    "Find the bug:\n\n```python\nfor {word} in",
    "Write unit tests for",
    "Convert this Java method to Python:\n\n",
    "Implement a {word} using",
    "Write an HTML page",
    "Explain what recursion",
)
MATHS = (
    "A {word} costs ${number}.",
    "There are {number} {word}s in",
    "{name} has {number} {word}s and",
    "{name} walks {number} miles",
    "If a train",
    "What is {number} times",
    "Solve the equation {number}x +",
    "A shop sells {number}",
    "Calculate the area of a {word}",
    "What percentage of {number}",
    "How many minutes",
    "Find the average of {number},",
    "{name} is {number} years old.",
    "A recipe for {word} needs {number}",
    "Simplify the fraction {number}/",
    "Explain step by step how to divide {number}",
    "Each {word} weighs {number} kilograms.",
    "What comes next: {number},",
)
REWRITING = (
    "Rewrite this sentence in a formal tone: The {word}",
    "Rewrite the following text so that it is shorter.\n\n{Word}",
    "Correct the grammar: {name} don't",
    "Summarize the following paragraph:\n\nThe {word}",
    "Turn these notes into an email:\n- {word}",
    "Make this friendlier: You must {verb} the {word}",
    "Paraphrase: In recent years, {word}",
    "Translate into Spanish: The {word}",
    "Change this to the past tense: {name}",
    "Turn the text below into bullet points.\n\n{Word}",
    "Simplify this for a child: {Word}",
    "Rewrite in the active voice: The {word} was",
    "Fix the spelling and punctuation:\n\n{name}",
    "Replace the word {word} in this text:",
    "Extract the names and dates from this text:\n\n",
    "Write a title for this article:\n\nThe {word}",
)
TASKS = {"chat": CHAT, "code": CODE, "maths": MATHS, "rewriting": REWRITING}

WORDS = _listed(
    """anchor apple archive balcony bakery battery beach bicycle blanket bridge budget camera candle canyon castle cat
    ceramics chess city clock cloud coffee comet community compass computer concert coral cotton culture dance desert
    diary dinner dinosaur dream drum economy engine essay factory family farm festival fever forest fountain fox garden
    glacier guitar harbour history holiday honey horse hospital house idea insect island jacket journey kitchen kite
    ladder lake lamp language law lecture letter library lighthouse magnet market matrix medicine memory meteor
    mirror money moon mountain museum music neighbour network notebook novel ocean orchard orchestra painting paper
    parrot passport pencil pepper piano planet plant poem pollution pottery puzzle queue railway rainbow recipe river
    robot rocket school science sculpture season sensor shadow ship sister sleep snow soap soil soup spider spring
    stadium stamp star storm string student sugar suitcase summer sunflower tea teacher team telescope theatre
    thread ticket tiger toaster tomato tool tower town toy tractor tradition tree tunnel umbrella university vaccine
    valley vegetable village violin virus volcano waterfall weather website wedding whale wheel window winter wolf
    workshop yoghurt zebra"""
)
VERBS = _listed(
    """add arrange bake borrow build change check choose clean collect compare count cut design divide draw explain
    find fix fold grow improve join keep learn measure merge move order pack paint plan practise prepare print protect
    remove repair replace reverse save search sell share sort split start stop store teach test travel update use
    wash write"""
)
NAMES = _listed(
    """Aisha Amara Ben Carlos Chloe Dmitri Elena Farid Grace Hana Ivan Jonas Kofi Lena Mateo Mei Nadia Nora Omar Priya
    Ravi Rosa Samir Sofia Tariq Tess Viktor Yara Yusuf Zoe"""
)
MOODS = ("anxious", "excited", "sad", "curious", "angry", "unsure", "happy", "tired", "lonely", "proud")

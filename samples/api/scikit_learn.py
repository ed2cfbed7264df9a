"""Audits a scikit-learn pipeline; skl2onnx turns it into a network first (pip install scikit-learn skl2onnx)."""

from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from audit import audit_model

x, y = load_wine(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.4, random_state=0, stratify=y)
pipeline = make_pipeline(StandardScaler(), MLPClassifier((16,), max_iter=1000, random_state=0)).fit(x_train, y_train)

report = audit_model(pipeline, (x_train, y_train), (x_test, y_test))

assert abs(report.gap.test_accuracy - pipeline.score(x_test, y_test)) < 1e-12
print(f"accuracy: train {report.gap.train_accuracy:.1%}, test {report.gap.test_accuracy:.1%}")
verdict = report.check({"gap.test_error": {"max": 0.1}, "hygiene.leaked.void": {"is": False}})
for result in verdict.results:
    print(f"{result.id} {result.status}: {result.sentence}")
print("passed" if verdict.passed else "failed")
